# SPDX-License-Identifier: BSD-2-Clause
"""Variants whose jobs keep to planned time shifts: the plan, and how often jobs re-aligned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd

from mltcp_tools.lab.analysis.result import PlannedJob, PlanResult
from mltcp_tools.lab.experiments.treatments import TimeShiftSettings
from mltcp_tools.lab.runs.folder import PLAN, PLAN_SCHEMA
from mltcp_tools.lab.runs.run import Run


def planned_of(run: Run, problems: list[str]) -> dict[str, PlanResult]:
    """Variant -> how its jobs kept to their plan; reasons for gaps are added to `problems`."""
    variants = [
        variant
        for variant in run.variant_names
        if TimeShiftSettings.name in run.experiment.treatments_of(variant)
    ]
    if not variants:
        return {}
    plans = _read_plans(run.path / PLAN, problems)
    table = run.iterations
    return {
        variant: _entry(plans.get(variant), table[table["variant"] == variant])
        for variant in variants
    }


def _read_plans(path: Path, problems: list[str]) -> dict[str, Any]:
    """The variants' plans in the file; {} where it can't be read."""
    try:
        document = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError) as error:
        why = "is missing" if isinstance(error, FileNotFoundError) else "can't be read"
        problems.append(f"{path.name} {why}, so scores and shifts aren't known.")
        return {}
    plans = document.get("variants") if isinstance(document, dict) else None
    if not isinstance(plans, dict) or document.get("schema") != PLAN_SCHEMA:
        problems.append(f"{path.name} isn't a {PLAN_SCHEMA}, so scores and shifts aren't known.")
        return {}
    return plans


def _entry(plan: object, table: pd.DataFrame) -> PlanResult:
    known = plan if isinstance(plan, dict) else {}
    time_shifts = known.get("time_shifts")
    jobs = {}
    for job, rows in table.groupby("job", sort=False):
        slot = time_shifts.get(job) if isinstance(time_shifts, dict) else None
        described = slot if isinstance(slot, dict) else {}
        realigned, per_minute = _realigned(rows)
        jobs[str(job)] = PlannedJob(
            shift_s=_number(described.get("shift_s")),
            period_s=_number(described.get("period_s")),
            realigned=realigned,
            realigned_per_minute=per_minute,
            waited_s=rows["waited_s"].mean(),
        )
    realigned, per_minute = _realigned(table)
    return PlanResult(
        score=_number(known.get("score")),
        bound=_number(known.get("bound")),
        stretch=_number(known.get("stretch")),
        realigned=realigned,
        realigned_per_minute=per_minute,
        jobs=jobs,
    )


def _realigned(table: pd.DataFrame) -> tuple[int | None, float | None]:
    """The times that jobs re-aligned, and the same per minute that each job ran."""
    if table["realigned"].isna().all():
        return None, None
    ran = table.groupby(["repetition", "job"]).agg({"start_s": "min", "end_s": "max"})
    minutes = float((ran["end_s"] - ran["start_s"]).sum()) / 60
    realigned = int(table["realigned"].sum())
    return realigned, realigned / minutes if minutes else None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None
