# SPDX-License-Identifier: BSD-2-Clause
"""Variants whose jobs keep to planned time shifts: the plan, and how often jobs re-aligned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from mltcp_tools.lab.analysis.result import PlannedJob, PlanResult
from mltcp_tools.lab.experiments.treatments import TimeShiftSettings
from mltcp_tools.lab.runs.folder import PLAN, PLAN_SCHEMA, read_document
from mltcp_tools.lab.runs.run import Run


def planned_of(run: Run) -> dict[str, PlanResult]:
    """Variant -> how its jobs kept to their plan."""
    path, table = run.path / PLAN, run.iterations
    plans = read_document(path, PLAN_SCHEMA)["variants"] if path.is_file() else {}
    return {
        variant: _entry(plans.get(variant, {}), table[table["variant"] == variant])
        for variant in run.variant_names
        if run.experiment.variants[variant].treatment(TimeShiftSettings)
    }


def _entry(plan: Mapping[str, Any], table: pd.DataFrame) -> PlanResult:
    jobs = {}
    for job, rows in table.groupby("job", sort=False):
        slot = plan.get("time_shifts", {}).get(job, {})
        realigned, per_minute = _realigned(rows)
        jobs[str(job)] = PlannedJob(
            shift_s=slot.get("shift_s"),
            period_s=slot.get("period_s"),
            realigned=realigned,
            realigned_per_minute=per_minute,
            waited_s=rows["waited_s"].mean(),
        )
    realigned, per_minute = _realigned(table)
    return PlanResult(
        score=plan.get("score"),
        bound=plan.get("bound"),
        stretch=plan.get("stretch"),
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
