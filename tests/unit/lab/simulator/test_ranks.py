# SPDX-License-Identifier: BSD-2-Clause
"""Jobs whose ranks wait for each other: the packet simulator against the schedules."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest

from mltcp_tools.lab.emulator.patterns import KINDS, Pattern, connections
from mltcp_tools.lab.simulator.inputs import PacketJob, Program, SimulatedLink
from mltcp_tools.lab.simulator.library import SimulationResult, simulate
from mltcp_tools.lab.simulator.rank_schedules import RankedJob, simulate_ranks

RATE = 100e6
PAYLOAD = 1448 / 1514
SIZE = 1_000_000
RANKS = 4


def job(pattern: Pattern, iterations: int = 4, start: float = 0.01) -> PacketJob:
    """Every rank on a link of its own, up and down."""
    tasks = pattern.tasks(SIZE)
    count = pattern.ranks
    paths = [((a, count + b), (b, count + a)) for a, b, _ in connections(tasks)]
    return PacketJob(
        start, [0.1] * iterations, (), program=Program(count, tasks, paths, range(count))
    )


def links(ranks: int = RANKS, slow: int | None = None) -> list[SimulatedLink]:
    every = [SimulatedLink(RATE, 60_000, 50e-6) for _ in range(2 * ranks)]
    if slow is not None:
        every[slow] = dataclasses.replace(every[slow], rate=RATE / 2)
    return every


def ranked(one: PacketJob, name: str = "job") -> RankedJob:
    assert one.program is not None
    return RankedJob(
        name=name,
        start_s=one.start,
        compute_s=one.compute,
        tasks=one.program.tasks,
        paths=[ahead for ahead, _ in one.program.paths],
        latencies_s=[0.0] * len(one.program.paths),
    )


def fluid(kind: str, jobs: Sequence[PacketJob], ranks: int = RANKS) -> list[float]:
    """Mean seconds of an iteration of each job under a schedule."""
    rates = dict.fromkeys(range(2 * ranks), RATE * PAYLOAD / 8)
    named = [ranked(each, str(number)) for number, each in enumerate(jobs)]
    table = simulate_ranks(kind, named, rates)  # type: ignore[arg-type]
    lengths = (table["end_s"] - table["start_s"]).groupby(table["job"]).mean()
    return [float(value) for value in lengths]


def iteration_s(result: SimulationResult, of_job: int = 0, start: float = 0.01) -> float:
    ends = result.bursts[of_job]["end_ns"] * 1e-9
    return float((ends[-1] - start) / len(ends))


@pytest.mark.parametrize("kind", KINDS)
def test_alone_takes_at_least_what_its_bytes_need(kind: str) -> None:
    one = job(Pattern(kind, RANKS, 2 if kind == "ring" else 4))
    [needed] = fluid("alone", [one])
    took = iteration_s(simulate(links(), [one], seed=1))
    assert needed <= took < 1.6 * needed


@pytest.mark.parametrize("kind", KINDS)
def test_all_bytes_arrive_once(kind: str) -> None:
    one = job(Pattern(kind, RANKS), iterations=3)
    assert one.program is not None
    sent = sum(task.size for task in one.program.tasks)
    result = simulate(links(), [one], seed=1)
    assert result.counters["received_bytes"] == 3 * sent


def test_a_ring_is_as_slow_as_its_slowest_link() -> None:
    one = job(Pattern("ring", RANKS))
    even = iteration_s(simulate(links(), [one], seed=1)) - 0.1
    uneven = iteration_s(simulate(links(slow=2), [one], seed=1)) - 0.1
    assert uneven > 1.5 * even


def test_schedules_of_a_ring() -> None:
    one = job(Pattern("ring", RANKS))
    steps = SIZE * 6 / 4 * 8 / (RATE * PAYLOAD)
    assert fluid("alone", [one]) == [pytest.approx(0.1 + steps)]
    # At the same time: time shifts let one pass unhindered, fair shares make both wait.
    first, second = fluid("bound", [one, one])
    assert 0.1 + steps <= first < second < 0.1 + 2 * steps
    assert fluid("fair", [one, one]) == [pytest.approx(0.1 + 2 * steps)] * 2


def test_time_shifts_leave_others_what_they_dont_need() -> None:
    """Two pairs on links of their own don't wait for each other, whoever is first."""
    one = job(Pattern("ring", 2))
    assert one.program is not None
    other = dataclasses.replace(
        one,
        program=dataclasses.replace(one.program, paths=[((4, 7), (5,)), ((5, 6), (4,))]),
    )
    assert fluid("bound", [one, other]) == fluid("alone", [one, other])
