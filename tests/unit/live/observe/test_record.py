# SPDX-License-Identifier: BSD-2-Clause
"""Recordings grow as jobs run, and are readable whenever they are looked at."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pandas as pd
import pytest
from support.watched_backend import WatchedBackend, event

from mltcp_tools.cli.main import main
from mltcp_tools.kernel.backends.base import IterationEvent, Job
from mltcp_tools.kernel.environment import RunEnvironment
from mltcp_tools.lab.analysis import load_run, render_text, summarise
from mltcp_tools.lab.planning.from_run import profiles_of_run
from mltcp_tools.live.observe.iterations import JobIteration, JobIterations
from mltcp_tools.live.observe.record import Recording, record

PERIOD_S = 0.5
BURST_S = 0.1
SIZE = 1_000_000
ENDS = ("10.0.0.1", "10.0.0.2")


def iterations(count: int, *ends: tuple[str, str], job: int = 1) -> list[IterationEvent]:
    """Of one flow for each pair of addresses, all of which send at once, from now on."""
    begin_s = time.monotonic() + 1
    return [
        event(job, cookie, n, begin_s + n * PERIOD_S, begin_s + n * PERIOD_S + BURST_S, SIZE, pair)
        for n in range(1, count + 1)
        for cookie, pair in enumerate(ends or (ENDS,), 10 * job)
    ]


def rows(folder: Path, table: str) -> int:
    """Complete lines of a table's CSV file, but for its head."""
    path = folder / f"{table}.csv"
    return path.read_text().count("\n") - 1 if path.exists() else 0


def test_a_killed_recording_has_all_it_had_seen(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    backend = WatchedBackend([Job(1, "a")], [], iterations(12))
    child = os.fork()
    if not child:
        record(folder, backend, (), lambda counts, elapsed_s: False)
        os._exit(1)
    try:
        # Of 12 the first says where the second starts, and two may go on.
        deadline = time.monotonic() + 60
        while rows(folder, "iterations") < 9 and time.monotonic() < deadline:
            time.sleep(0.01)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    run = load_run(folder)
    assert len(run.iterations) == 9
    assert (run.iterations["end_s"] - run.iterations["start_s"]).mean() == pytest.approx(PERIOD_S)
    assert len(run.bursts) == len(run.flow_events) == 9
    assert [view.name for view in run.experiment.jobs.values()] == ["a"]
    assert "The run was killed, or is still going on." in run.problems
    assert summarise(run).document()["variants"]
    (profile,) = profiles_of_run(run)
    assert profile.period_s == pytest.approx(PERIOD_S)
    assert main(["report", str(folder)]) == 0


def test_a_finished_recording_is_whole(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    backend = WatchedBackend([Job(1, "a"), Job(2, "b")], [], iterations(8))
    counts = record(folder, backend, (), lambda counts, elapsed_s: counts["a"] >= 5)
    assert counts == {"a": 7, "b": 0}
    run = load_run(folder)
    for name in ("iterations", "bursts", "flow_events", "variants"):
        as_text = pd.read_csv(folder / f"{name}.csv")
        assert not name.startswith("variant") or set(as_text["variant"]) == {"mltcp"}
        assert len(as_text) == len(getattr(run, name))
    assert run.experiment.jobs["a"].bytes == SIZE
    assert run.experiment.jobs["a"].compute == pytest.approx(PERIOD_S - BURST_S)
    assert "killed" not in " ".join(run.problems)


def test_several_congestion_controls_are_one_variant(tmp_path: Path) -> None:
    RunEnvironment(tmp_path)
    odd = "7 (python3) to 127.0.0.1"
    recording = Recording({1: Job(1, "a"), 2: Job(2, odd)}, 0.0, tmp_path)
    recording.describe(0.0)
    assert "No iterations were recorded." in render_text(summarise(load_run(tmp_path)).document())
    for number, cc in enumerate(("cubic", "bbr"), 1):
        recording.runs(number, cc, number, "10.0.0.1")
        recording.take([JobIteration(number, number, number, number + 0.5, number + 1, SIZE, ())])
    run = load_run(tmp_path)
    assert run.job_names == ["a", odd]
    assert run.variant_names == ["bbr+cubic"]
    assert set(run.iterations["variant"]) == set(run.bursts["variant"]) == {"bbr+cubic"}


def test_both_ends_on_one_host_are_two_directions(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    events = iterations(10, ENDS, ENDS[::-1])
    backend = WatchedBackend([Job(1, "a")], [], events)
    record(folder, backend, (), lambda counts, elapsed_s: counts["a"] >= 5)
    run = load_run(folder)
    assert set(run.flow_events["back"]) == {0, 1}
    (profile,) = profiles_of_run(run)
    for (phase,) in (profile.phases, profile.back):
        assert phase.bytes == pytest.approx(SIZE)
        assert phase.rate_bps == pytest.approx(SIZE * 8 / BURST_S)
    assert profile.phases[0].end_s == pytest.approx(PERIOD_S)


# What is not an iteration


def times(*found: tuple[float, int]) -> list[tuple[float, int]]:
    """Duration and bytes of the iterations that bursts of so many bytes at such times make."""
    joined, complete = JobIterations(1), []
    for number, (begin_s, size) in enumerate(found, 1):
        complete += joined.add(event(1, 1, number, begin_s, begin_s + 0.01, size))
    complete += joined.flush()
    assert [each.number for each in complete] == list(range(1, len(complete) + 1))
    return [(round(each.duration_s, 3), each.bytes) for each in complete]


def test_a_fragment_is_no_iteration() -> None:
    regular = [(n * 1.3, SIZE) for n in range(1, 12)]
    found = times(*sorted([*regular, (6.5 + 0.213, 384)]))
    assert found == [(1.3, SIZE)] * 10
    # Nor where it comes first.
    assert times((0.1, 384), *regular) == [(1.3, SIZE)] * 10


def test_iterations_that_get_small_for_good_are_iterations() -> None:
    before = [(n * 1.0, SIZE) for n in range(20)]
    found = times(*before, *((20 + n * 0.1, SIZE // 100) for n in range(40)))
    assert found[-20:] == [(0.1, SIZE // 100)] * 20
    # One that is a third of the usual is whole, too.
    third = [(n * 1.0, SIZE if n % 3 else SIZE // 3) for n in range(20)]
    assert len(times(*third)) == 19
