# SPDX-License-Identifier: BSD-2-Clause
"""Lengths of queues, from what passes through them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mltcp_tools.lab.experiments.reading import parse_experiment
from mltcp_tools.lab.experiments.variants import ALONE
from mltcp_tools.lab.simulator.inputs import Link, PacketJob, Priorities
from mltcp_tools.lab.simulator.library import simulate
from mltcp_tools.lab.simulator.queues import WatchedQueue, mean_bytes, percentile_bytes
from mltcp_tools.lab.simulator.variants import simulate_variant

WIRE = 1514
LINK = Link(rate=100e6, queue=60_000, rtt=1e-3)


def watched(
    link: Link, jobs: list[PacketJob], priorities: Priorities | None = None
) -> WatchedQueue:
    return WatchedQueue(link.queue, simulate(link, jobs, seed=1, priorities=priorities).queues[0])


def test_a_link_is_busy_for_as_long_as_it_sends() -> None:
    job = PacketJob(0.0, [0.1] * 3, [[1_000_000]] * 3)
    done = simulate(LINK, [job], seed=1)
    wire = done.counters["forwarded_bytes"]
    busy_s = done.queues[0][0] * 1e-9
    assert busy_s == pytest.approx(wire * 8 / LINK.rate, rel=1e-3)
    assert done.queues[0][2:].sum() == pytest.approx(done.queues[0][0])


def test_one_packet_at_a_time_is_half_a_packet_on_average() -> None:
    """It is the whole packet as it comes, and nothing when it is sent."""
    job = PacketJob(0.0, [0.01] * 50, [[1448]] * 50)
    queue = watched(LINK, [job])
    assert mean_bytes([queue]) == pytest.approx(WIRE / 2, rel=0.01)
    assert percentile_bytes([queue], 1.0) == pytest.approx(WIRE, abs=LINK.queue / 100)


def test_reno_fills_what_there_is() -> None:
    queue = watched(LINK, [PacketJob(0.0, [0.1], [[20_000_000]])])
    assert 0.4 * LINK.queue < mean_bytes([queue]) < 0.9 * LINK.queue
    assert percentile_bytes([queue], 0.99) == pytest.approx(LINK.queue, rel=0.05)
    longer = replace(LINK, queue=120_000)
    assert mean_bytes([watched(longer, [PacketJob(0.0, [0.1], [[20_000_000]])])]) > mean_bytes(
        [queue]
    )


def test_levels_have_queues_of_their_own_that_count_together() -> None:
    two = [PacketJob(0.0, [0.01], [[2_000_000]]) for _ in range(2)]
    queue = watched(LINK, two, priorities=Priorities())
    assert percentile_bytes([queue], 0.99) > 1.2 * LINK.queue


def test_variant_has_the_queues_of_links_that_jobs_use() -> None:
    text = """
name: queues
links: {one: {rate: 100mbit, queue: 30kB}, two: {rate: 50mbit, queue: 20kB}}
jobs:
  - {name: a, links: [one, two], bytes: 500kB, compute: 50ms}
  - {name: b, links: [one], bytes: 500kB, compute: 50ms}
variants: {reno: {cc: reno}}
iterations: 3
repetitions: 1
alone: {iterations: 2}
"""
    experiment = parse_experiment(text, "queues.yaml")
    done = simulate_variant(experiment, experiment.variant("reno"), 1)
    assert [each.most for each in done.queues] == [30_000, 20_000]
    assert len(simulate_variant(experiment, experiment.variant(ALONE), 1).queues) == 4
    assert 0 < mean_bytes(done.queues) < percentile_bytes(done.queues, 0.99) <= 30_000


def test_without_traffic_there_is_no_queue() -> None:
    idle = simulate([LINK, LINK], [PacketJob(0.0, [0.1], [[1448]])], seed=1).queues[1]
    assert mean_bytes([WatchedQueue(LINK.queue, idle)]) == 0
    assert percentile_bytes([WatchedQueue(LINK.queue, idle)], 0.99) == 0
