# SPDX-License-Identifier: BSD-2-Clause
"""Jobs that come late or leave early."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from support.run_folders import experiment, make_run
from support.shown import fits

from mltcp_tools.lab.analysis import load_run, render_text, summarise
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


def test_reports_show_phases(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", experiment(jobs=2))
    table = pd.read_csv(folder / "iterations.csv")
    late = (table["job"] == "job-2") & (table["variant"] != "alone")
    table = table[~late | (table["iteration"] > 20)]
    table.to_csv(folder / "iterations.csv", index=False)
    result = summarise(load_run(folder)).document()
    assert [p["jobs"] for p in result["variants"]["cubic"]["phases"]] == [
        ["job-1"],
        ["job-1", "job-2"],
    ]
    assert "jobs that run" in fits(render_text(result))
