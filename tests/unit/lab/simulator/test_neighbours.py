# SPDX-License-Identifier: BSD-2-Clause
"""Neighbours in virtual time: bulk flows and requests beside the jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from mltcp_tools.lab.analysis import load_run
from mltcp_tools.lab.analysis.neighbours import throughputs
from mltcp_tools.lab.emulator.job import compute_times
from mltcp_tools.lab.experiments.experiment import Experiment
from mltcp_tools.lab.experiments.reading import parse_experiment
from mltcp_tools.lab.experiments.tasks import neighbour_tasks
from mltcp_tools.lab.experiments.variants import ALONE
from mltcp_tools.lab.simulator.modelled import modelled
from mltcp_tools.lab.simulator.simulate_experiment import simulate_experiment
from mltcp_tools.lab.simulator.variants import simulate_variant

TEXT = """\
name: beside
link: {rate: 100mbit, queue: 30kB}
jobs: [{count: 2, bytes: 500kB, compute: 100ms, jitter: 5%, start: random}]
NEIGHBOURS
variants:
  reno: {cc: reno}
  mltcp: {cc: mltcp}
  order: {cc: reno, treatment: {priorities: {floor: 5%}}}
iterations: 8
repetitions: 1
alone: {iterations: 3}
"""
BULK = "{name: bulk, cc: cubic}"
REQUESTS = "{name: asks, cc: variant, size: 20kB, think: 10ms, jitter: 20%}"


def beside(*neighbours: str) -> Experiment:
    listed = f"neighbours: [{', '.join(neighbours)}]" if neighbours else ""
    text = TEXT.replace("NEIGHBOURS", listed)
    experiment, left_out = modelled(parse_experiment(text, "beside.yaml"))
    assert not left_out
    return experiment


def test_a_run_with_neighbours_has_their_tables(tmp_path: Path) -> None:
    simulate_experiment(beside(BULK, REQUESTS), tmp_path)
    run = load_run(tmp_path)
    assert run.problems == []
    assert set(run.bulk["neighbour"]) == {"bulk"}
    assert set(run.requests["neighbour"]) == {"asks"}
    assert set(run.requests["variant"]) == {"reno", "mltcp", "order"}
    assert (run.requests["bytes"] == 20_000).all()
    assert set(run.iterations["job"]) == {"job-1", "job-2"}
    shares = throughputs(run, "reno")["bps"] / 100e6
    assert shares.between(0.2, 0.95).all()


def test_requests_pause_as_they_were_drawn() -> None:
    experiment = beside(REQUESTS)
    variant = experiment.variant("reno")
    (task,) = neighbour_tasks(experiment, variant, 1)
    ((_, document),) = simulate_variant(experiment, variant, 1).neighbours
    drawn = compute_times(task.spec)
    assert len(document["iterations"]) > 20
    before = 0.0
    for iteration in document["iterations"]:
        (burst,) = iteration["bursts"]
        assert burst["start"] - before == pytest.approx(next(drawn))
        before = burst["end"]


def test_there_are_requests_for_as_long_as_the_jobs_run(monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = beside(REQUESTS)
    variant = experiment.variant("reno")
    known = simulate_variant(experiment, variant, 1)
    monkeypatch.setattr(
        "mltcp_tools.lab.simulator.variants._requests_at_first", lambda experiment: 2
    )
    again = simulate_variant(experiment, variant, 1)
    assert known.neighbours == again.neighbours
    assert known.documents == again.documents


def test_neighbours_slow_jobs_and_are_absent_from_isolated_runs() -> None:
    quiet, loud = beside(), beside(BULK)
    durations = [simulate_variant(each, each.variant("reno"), 1).duration for each in (quiet, loud)]
    assert durations[1] > 1.2 * durations[0]
    lone = [simulate_variant(each, each.variant(ALONE), 1) for each in (quiet, loud)]
    assert lone[0].duration == pytest.approx(lone[1].duration, rel=0.05)
    assert not lone[1].neighbours


def test_with_priorities_a_bulk_flow_gets_what_jobs_leave() -> None:
    quiet, loud = beside(), beside(BULK)
    alone, both = (
        simulate_variant(each, each.variant("order"), 1).duration for each in (quiet, loud)
    )
    assert both < 1.1 * alone
    experiment = beside(BULK)
    ((_, document),) = simulate_variant(experiment, experiment.variant("order"), 1).neighbours
    assert document["samples"][-1]["bytes_acked"] > 0
