# SPDX-License-Identifier: BSD-2-Clause
"""A planned variant on a real link: its jobs keep out of each other's way."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from mltcp_tools.lab.analysis import load_run, render_text, summarise
from mltcp_tools.lab.analysis.undisturbed import undisturbed
from mltcp_tools.lab.experiments.reading import load_experiment
from mltcp_tools.lab.testbed.run_experiment import run_experiment

# Bursts of 42 ms in iterations of 0.2 s: planned, there are about 60 ms between two of them.
EXPERIMENT = """\
name: pair
link: {rate: 100mbit, queue: 30kB}
jobs: [{count: 2, bytes: 500kB, compute: 160ms}]
variants:
  cubic: {cc: cubic}
  planned: {cc: cubic, treatment: {time_shifts: {}}}
iterations: 10
repetitions: 1
alone: {iterations: 4}
"""


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    path = tmp_path / "pair.yaml"
    path.write_text(EXPERIMENT)
    return path


def overlapping(bursts: pd.DataFrame) -> int:
    """Return how many bursts of job-1 overlap with one of job-2."""
    one, other = (bursts[bursts["job"] == job] for job in ("job-1", "job-2"))
    return sum(
        bool(((other["start_s"] < burst.end_s) & (other["end_s"] > burst.start_s)).any())
        for burst in one.itertuples()
    )


def test_planned_bursts_do_not_overlap(experiment: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run_experiment(load_experiment(experiment), folder)
    bursts = pd.read_csv(folder / "bursts.csv")
    run = load_run(folder)
    if not any(each.disturbed for each in undisturbed(run).found.values()):
        # Both jobs start at the same instant, so that without a plan they collide.
        assert overlapping(bursts[(bursts["variant"] == "cubic") & (bursts["iteration"] == 1)]) == 1
        assert overlapping(bursts[bursts["variant"] == "planned"]) <= 1

    plan = json.loads((folder / "plan.json").read_text())["variants"]["planned"]
    assert 0 < plan["score"] <= plan["bound"]
    time_shifts = plan["time_shifts"]
    assert set(time_shifts) == {"job-1", "job-2"}
    result = summarise(run).document()
    shown = result["variants"]["planned"]["plan"]
    for job, each in shown["jobs"].items():
        assert (each["shift_s"], each["period_s"]) == (
            time_shifts[job]["shift_s"],
            time_shifts[job]["period_s"],
        )
        assert each["realigned"] >= 0
    score = f"{plan['score']:.3f} of at most {plan['bound']:.3f}"
    assert f"planned: compatibility score {score}" in render_text(result)
    iterations = pd.read_csv(folder / "iterations.csv")
    planned = iterations[iterations["variant"] == "planned"]
    assert (planned["waited_s"] > 0).any()
    for job, own in planned[planned["iteration"] == 1].groupby("job"):
        assert (
            own["start_s"] >= time_shifts[job]["shift_s"] - 1e-6
        ).all()  # delayed, never hastened
    unplanned = iterations[iterations["variant"] != "planned"]
    assert (unplanned["realigned"] == 0).all()
    assert (unplanned["waited_s"] == 0).all()
