# SPDX-License-Identifier: BSD-2-Clause
"""Jobs that come late or leave early, flows that aren't done together, and what is not modelled."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from support.run_folders import experiment, make_run
from support.shown import fits

from mltcp_tools.lab.analysis import load_run, render_text, summarise
from mltcp_tools.lab.analysis.html import render_html
from mltcp_tools.lab.analysis.phases import phases_of


def iterations(
    job: str, first_s: float, count: int, seconds: float, repetition: int = 1
) -> pd.DataFrame:
    """A job's iterations, one right after the other."""
    start = [first_s + n * seconds for n in range(count)]
    table = pd.DataFrame({"start_s": start, "end_s": [s + seconds for s in start]})
    return table.assign(job=job, repetition=repetition, iteration=range(1, count + 1))


def test_phases_begin_and_end_with_jobs() -> None:
    table = pd.concat(
        [
            iterations("a", 0.0, 90, 1.0),
            iterations("b", 0.4, 90, 1.0),  # that both start and end apart is not a phase
            iterations("late", 30.0, 30, 2.0),
        ]
    )
    bound = table.assign(end_s=table["end_s"] - 0.5)
    two, three = phases_of(table, bound)
    assert two.jobs == ["a", "b"]
    assert three.jobs == ["a", "b", "late"]
    assert two.iteration_s
    assert three.iteration_s
    assert two.iteration_s.mean == pytest.approx(1.0)
    assert three.iteration_s.count == 60 + 60 + 30
    assert three.iteration_s.mean == pytest.approx((120 * 1.0 + 30 * 2.0) / 150)
    assert three.bound_s == pytest.approx(three.iteration_s.mean - 0.5)
    assert phases_of(table, None)[0].bound_s is None


def test_phases_are_pooled_over_repetitions() -> None:
    tables = [
        pd.concat([iterations("a", 0.0, 40, 1.0, n), iterations("b", 20.0, 20, 1.0, n)])
        for n in (1, 2)
    ]
    phases = phases_of(pd.concat(tables), None)
    assert [(p.jobs, p.iteration_s and p.iteration_s.count) for p in phases] == [
        (["a"], 40),
        (["a", "b"], 80),
    ]


def test_jobs_that_run_all_the_time_have_no_phases() -> None:
    assert (
        phases_of(pd.concat([iterations("a", 0, 50, 1.0), iterations("b", 0.5, 50, 1.01)]), None)
        == []
    )


def test_the_reports_show_phases_and_spread(tmp_path: Path) -> None:
    document = experiment(jobs=2)
    document["jobs"][0]["flows"] = 2
    folder = make_run(tmp_path / "run", document)
    table = pd.read_csv(folder / "iterations.csv")
    late = (table["job"] == "job-2") & (table["variant"] != "alone")
    table = table[~late | (table["iteration"] > 20)]
    table.to_csv(folder / "iterations.csv", index=False)
    result = summarise(load_run(folder)).document()
    assert [p["jobs"] for p in result["variants"]["cubic"]["phases"]] == [
        ["job-1"],
        ["job-1", "job-2"],
    ]
    spread = result["variants"]["cubic"]["spread_of_completion"]
    assert spread["mean"] == pytest.approx(0.001)
    text = fits(render_text(result))
    assert "while these run" in text
    assert "spread: time between the first and the last flow" in text
    assert "while these run" in render_html(result, {})


def test_one_flow_has_no_spread(tmp_path: Path) -> None:
    result = summarise(load_run(make_run(tmp_path / "run", experiment(jobs=2)))).document()
    assert result["variants"]["cubic"]["spread_of_completion"] is None
    assert "spread:" not in render_text(result)


def test_jobs_of_limited_rate_have_no_bound(tmp_path: Path) -> None:
    document = experiment(jobs=2)
    document["jobs"][0]["rate"] = "100mbit"
    result = summarise(load_run(make_run(tmp_path / "run", document))).document()
    assert list(result["schedules"]) == ["alone"]
    assert any("limited rate" in each for each in result["problems"])
