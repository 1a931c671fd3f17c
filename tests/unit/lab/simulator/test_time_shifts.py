# SPDX-License-Identifier: BSD-2-Clause
"""Planned time shifts in virtual time: the plan is the planner's, jobs wait as the emulator's
do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mltcp_tools.lab.analysis import load_run, make_report
from mltcp_tools.lab.emulator.time_shift import Pace, TimeShift
from mltcp_tools.lab.experiments.reading import parse_experiment
from mltcp_tools.lab.planning.variants import plan_variants
from mltcp_tools.lab.simulator.inputs import PacketJob, SimulatedLink
from mltcp_tools.lab.simulator.library import simulate
from mltcp_tools.lab.simulator.modelled import modelled
from mltcp_tools.lab.simulator.simulate_experiment import simulate_experiment

TEXT = """\
name: time-shifts
link: {rate: 200mbit, queue: 30kB}
jobs: [{count: 3, bytes: 2.5MB, compute: 250ms, start: random}]
variants:
  cubic: {cc: cubic}
  planned: {cc: cubic, treatment: {time_shifts: {}}}
iterations: 12
repetitions: 2
alone: {iterations: 5}
"""


def test_early_bursts_wait_and_late_ones_take_the_next_slot() -> None:
    """As `emulator.time_shifts.Pace` has it, with compute times that make the job early and
    late."""
    time_shifts = TimeShift(0.3, 0.02)
    computes = [0.2, 0.25, 0.29, 0.2, 0.6, 0.1, 0.27]
    start = time_shifts.first(0.0, 0.0)
    due = start + 0.2
    job = PacketJob(start, computes, [[500_000]] * 7, time_shifts=time_shifts, due=due)
    (bursts,) = simulate(SimulatedLink(200e6, 1_000_000, 1e-4), [job], seed=1).bursts
    pace, before, begins = Pace(time_shifts, due), start, []
    for compute, burst in zip(computes, bursts, strict=True):
        begins.append(pace.begin(before + compute))
        assert burst["start_ns"] * 1e-9 == pytest.approx(begins[-1].at_s, abs=1e-8)
        before = burst["end_ns"] * 1e-9
    assert [each.realigned for each in begins] == [False] * 4 + [True, False, False]
    assert sum(each.waited_s > 0 for each in begins) >= 4


def test_a_planned_variant_keeps_jobs_apart(tmp_path: Path) -> None:
    experiment, left_out = modelled(parse_experiment(TEXT, "time_shifts.yaml"))
    assert not left_out
    simulate_experiment(experiment, tmp_path)
    run = load_run(tmp_path)
    assert run.problems == []
    planned = run.iterations[
        (run.iterations["variant"] == "planned") & (run.iterations["iteration"] > 1)
    ]
    assert (planned["end_s"] - planned["start_s"]).max() < 0.365
    assert planned["waited_s"].max() > 0
    bursts = run.bursts[(run.bursts["variant"] == "planned") & (run.bursts["iteration"] > 1)]
    for _, own in bursts.groupby("repetition"):
        own = own.sort_values("start_s")
        assert (own["start_s"].to_numpy()[1:] >= own["end_s"].to_numpy()[:-1]).all()
    written = json.loads((tmp_path / "plan.json").read_text())["variants"]["planned"]["time_shifts"]
    again = plan_variants(experiment, tmp_path)["planned"].time_shifts
    assert {job: each["period_s"] for job, each in written.items()} == pytest.approx(
        {job: each.period_s for job, each in again.items()}, rel=0.01
    )
    assert make_report(run).result["variants"]["planned"]["plan"]["score"] == pytest.approx(1.0)
