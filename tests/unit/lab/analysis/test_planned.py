# SPDX-License-Identifier: BSD-2-Clause
"""Plans and re-alignments in the reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from support.run_folders import experiment, make_run
from support.shown import fits

from mltcp_tools.lab.analysis import load_run, render_text, summarise
from mltcp_tools.lab.analysis.html import render_html
from mltcp_tools.lab.analysis.matrix import render_matrix_text, summarise_matrix


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run with a planned variant; job-2 re-aligned in two iterations of each repetition."""
    document = experiment(jobs=2, variants={"planned": "cubic", "cubic": "cubic", "mltcp": "mltcp"})
    document["variants"]["planned"]["treatment"] = {"time_shifts": {"room": "1%"}}
    document["variants"]["both"] = {"cc": "mltcp_cubic", "treatment": {"time_shifts": {}}}
    path = make_run(tmp_path / "run", document)
    table = pd.read_csv(path / "iterations.csv")
    hit = (
        (table["job"] == "job-2")
        & table["iteration"].isin([3, 7])
        & (table["variant"] == "planned")
    )
    table = table.assign(realigned=hit.astype(int), waited_s=0.2 * hit)
    table.to_csv(path / "iterations.csv", index=False)
    time_shifts = {
        f"job-{n}": {"period_s": 0.45, "shift_s": 0.1 * n, "realign": 0.05} for n in (1, 2)
    }
    plan = {"score": 0.9, "worst": 0.9, "bound": 0.95, "stretch": 0.11, "time_shifts": time_shifts}
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
    assert result["variants"]["both"]["plan"]["realigned"] == 0


def test_an_variant_builds_on_one_without_a_plan(folder: Path) -> None:
    assert summarise(load_run(folder)).document()["variants"]["both"]["base"] == "cubic"


def test_the_reports_show_them(folder: Path) -> None:
    result = summarise(load_run(folder)).document()
    text = render_text(result)
    assert "planned: score 0.900 of at most 0.950, time shifts 11.0% longer" in text
    assert any(
        line.split()[:5] == ["planned", "job-2", "200.0", "450.0", "10.0"]
        for line in text.splitlines()
    )
    fits(text)
    assert "planned: score 0.900 of at most 0.950" in render_html(result, {})


def test_many_missed_time_shifts_are_a_warning(folder: Path) -> None:
    assert not any(
        "too late" in each for each in summarise(load_run(folder)).document()["warnings"]
    )
    table = pd.read_csv(folder / "iterations.csv")
    late = (table["variant"] == "planned") & (table["iteration"] % 5 == 0)
    table.assign(realigned=late.astype(int)).to_csv(folder / "iterations.csv", index=False)
    warnings = summarise(load_run(folder)).document()["warnings"]
    (said,) = (each for each in warnings if "too late" in each)
    assert said.startswith("In variant planned 32 of 160 iterations came too late")


def test_without_plans_nothing_is_said_of_them(tmp_path: Path) -> None:
    result = summarise(load_run(make_run(tmp_path / "run", experiment(jobs=2)))).document()
    assert "re-align" not in render_text(result)
    assert "re-align" not in render_html(result, {})
    assert not any("plan" in each for each in result["problems"])


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "plan.json is missing"),
        ("{", "plan.json can't be read"),
        ("[]", "plan.json isn't a mltcp-run-plan/1"),
        ('{"schema": "other", "variants": {}}', "plan.json isn't a mltcp-run-plan/1"),
        ('{"schema": "mltcp-run-plan/1", "variants": {"planned": 3}}', None),
        (
            '{"schema": "mltcp-run-plan/1", "variants": {"planned": {"time shifts": {"job-1":'
            " 1}}}}",
            None,
        ),
    ],
)
def test_a_damaged_plan_costs_scores_and_shifts_only(
    folder: Path, content: str | None, problem: str | None
) -> None:
    (folder / "plan.json").unlink()
    if content is not None:
        (folder / "plan.json").write_text(content)
    result = summarise(load_run(folder)).document()
    assert problem is None or any(each.startswith(problem) for each in result["problems"])
    plan = result["variants"]["planned"]["plan"]
    assert (plan["score"], plan["realigned"]) == (None, 4)
    render_text(result)
    render_html(result, {})


def matrix(folder: Path) -> dict[str, Any]:
    results = {"one": summarise(load_run(folder)).document()}
    return summarise_matrix("few", {"one": "first"}, results, {})


def test_a_matrix_has_a_line_per_variant_of_planned_scenarios(folder: Path) -> None:
    document = matrix(folder)
    own = document["scenarios"]["one"]["variants"]["planned"]
    assert own["plan"]["score"] == 0.9
    assert own["drops"] == pytest.approx(2 * 10 / (2 * 2 * 40))
    text = render_matrix_text(document)
    lines = [line for line in text.splitlines() if line.startswith("one ")]
    assert any("planned" in line and " 0.900 " in line for line in lines)
    fits(text)
