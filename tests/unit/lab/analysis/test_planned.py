# SPDX-License-Identifier: BSD-2-Clause
"""Plans and re-alignments in the reports."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from support.run_folders import experiment, make_run
from support.shown import fits

from mltcp_tools.lab.analysis import load_run, render_text, summarise


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run with a planned variant; job-2 re-aligned in two iterations of each repetition."""
    document = experiment(jobs=2, variants={"planned": "cubic", "cubic": "cubic", "mltcp": "mltcp"})
    document["variants"]["planned"]["treatment"] = {"time_shifts": {"room": "1%"}}
    document["variants"]["both"] = {"cc": "mltcp_cubic", "treatment": {"time_shifts": {}}}
    path = make_run(tmp_path / "run", document)
    table = pd.read_csv(path / "iterations.csv")
    hit = table.eval("job == 'job-2' and iteration in (3, 7) and variant == 'planned'")
    table = table.assign(realigned=hit.astype(int), waited_s=0.2 * hit)
    table.to_csv(path / "iterations.csv", index=False)
    time_shifts = {
        f"job-{n}": {"period_s": 0.45, "shift_s": 0.1 * n, "realign": 0.05} for n in (1, 2)
    }
    plan = {"score": 0.9, "bound": 0.95, "stretch": 0.11, "time_shifts": time_shifts}
    variants = {"planned": plan, "both": plan}
    (path / "plan.json").write_text(
        json.dumps({"schema": "mltcp-run-plan/1", "variants": variants})
    )
    return path


def test_the_result_has_shifts_and_re_alignments(folder: Path) -> None:
    result = summarise(load_run(folder)).document()
    plan = result["variants"]["planned"]["plan"]
    assert (plan["score"], plan["bound"], plan["stretch"]) == (0.9, 0.95, 0.11)
    assert plan["realigned"] == 4
    assert [job["realigned"] for job in plan["jobs"].values()] == [0, 4]
    second = plan["jobs"]["job-2"]
    assert (second["shift_s"], second["period_s"]) == (0.2, 0.45)
    table = load_run(folder).iterations.query("variant == 'planned' and job == 'job-2'")
    ran = table.groupby("repetition").agg({"start_s": "min", "end_s": "max"})
    minutes = (ran["end_s"] - ran["start_s"]).sum() / 60
    assert second["realigned_per_minute"] == pytest.approx(4 / minutes)
    assert second["waited_s"] == pytest.approx(0.2 * 2 / 40)
    assert plan["realigned_per_minute"] == pytest.approx(2 / minutes, rel=0.05)
    assert result["variants"]["cubic"]["plan"] is None
    both = result["variants"]["both"]
    assert (both["plan"]["realigned"], both["base"]) == (0, "cubic")


def test_reports_show_shifts_and_scores(folder: Path) -> None:
    text = fits(render_text(summarise(load_run(folder)).document()))
    assert "planned: compatibility score 0.900 of at most 0.950; periods 11.0% longer" in text
    assert any(
        line.split()[:5] == ["planned", "job-2", "200.0", "450.0", "10.0"]
        for line in text.splitlines()
    )


def test_many_missed_time_shifts_are_a_warning(folder: Path) -> None:
    assert not any(
        "missed their slot" in each for each in summarise(load_run(folder)).document()["warnings"]
    )
    table = pd.read_csv(folder / "iterations.csv")
    late = (table["variant"] == "planned") & (table["iteration"] % 5 == 0)
    table.assign(realigned=late.astype(int)).to_csv(folder / "iterations.csv", index=False)
    warnings = summarise(load_run(folder)).document()["warnings"]
    (said,) = (each for each in warnings if "missed their slot" in each)
    assert said.startswith("In variant planned 32 of 160 iterations missed their slot")


def test_without_a_plan_the_realignments_are_still_reported(folder: Path) -> None:
    (folder / "plan.json").unlink()
    result = summarise(load_run(folder)).document()
    plan = result["variants"]["planned"]["plan"]
    assert (plan["score"], plan["realigned"]) == (None, 4)
    fits(render_text(result))
