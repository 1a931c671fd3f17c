# SPDX-License-Identifier: BSD-2-Clause
"""The order that the controller makes of bursts as the programs report them."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from mltcp_tools.live.priorities.controller import WAKE_S, Controller, order
from mltcp_tools.live.priorities.maps import KnownJob, PriorityBurst

MS = 1_000_000
NOW = 1000 * MS
JOB = KnownJob(bytes=1_000_000, gap_ns=50 * MS)


def burst(sent: int, began_ms: int = 900, last_ms: int = 999, active: bool = True) -> PriorityBurst:
    return PriorityBurst(sent, began_ms * MS, last_ms * MS, 0, 1, active)


class Host:
    """Two jobs' maps. Job 1 is first in order; its burst ends as job 2's goes on."""

    def __init__(self) -> None:
        now = time.monotonic_ns()
        self.bursts = {
            1: PriorityBurst(900_000, now, now, 0, 1, True),
            2: PriorityBurst(100_000, now, now, 0, 1, True),
        }
        self.levels: dict[int, int] = {}

    def jobs(self) -> dict[int, KnownJob]:
        return {job: replace(JOB, gap_ns=10_000 * MS) for job in self.bursts}

    def burst(self, job: int) -> PriorityBurst:
        return self.bursts[job]

    def set_level(self, job: int, level: int) -> None:
        self.levels[job] = level


def test_last_packets_of_a_burst_keep_its_level() -> None:
    """Bytes sent again count, so a burst has sent its bytes while its last packets are still to
    come. On a level behind another burst they were lost: each iteration took 200 ms longer. One
    that sends much more is not the known burst, and would starve the others."""
    host = Host()
    controller = Controller(host, "none", 8)
    controller.update()
    host.bursts[1] = replace(host.bursts[1], sent=1_100_000)
    controller.update()
    assert host.levels == {1: 0, 2: 1}
    host.bursts[1] = replace(host.bursts[1], sent=100_000_000, active=False)
    controller.update()
    assert host.levels == {1: 2, 2: 1}


def test_the_end_of_a_gap_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic_ns", lambda: 100 * NOW)
    host = Host()
    controller = Controller(host, "none", 8)
    for ago_ms, wait_s, levels in [
        (0, WAKE_S, {1: 0, 2: 1}),
        (9_950, 0.05, {1: 0, 2: 1}),
        (10_001, WAKE_S, {1: 2, 2: 1}),
    ]:
        host.bursts[1] = replace(host.bursts[1], last_ns=100 * NOW - ago_ms * MS)
        controller.update()
        assert (controller.wait_s, host.levels) == (pytest.approx(wait_s), levels)


def test_the_burst_with_least_left_goes_first() -> None:
    bursts = {1: burst(100_000), 2: burst(900_000), 3: burst(500_000)}
    assert order(dict.fromkeys(bursts, JOB), bursts, "none", NOW) == [2, 3, 1]


def test_equals_go_as_they_came() -> None:
    bursts = {1: burst(0, began_ms=990), 2: burst(0, began_ms=980), 3: burst(0, began_ms=985)}
    assert order(dict.fromkeys(bursts, JOB), bursts, "none", NOW) == [2, 3, 1]


def test_idle_time_weighs_for_who_has_waited_long() -> None:
    bursts = {1: burst(200_000, began_ms=400), 2: burst(500_000, began_ms=900)}
    jobs = dict.fromkeys(bursts, JOB)
    assert order(jobs, bursts, "none", NOW) == [2, 1]
    assert order(jobs, bursts, "idle", NOW) == [1, 2]


def test_jobs_that_do_not_send_have_no_place() -> None:
    host = Host()
    host.bursts[1] = replace(host.bursts[1], active=False)
    host.bursts[3] = replace(host.bursts[2], last_ns=time.monotonic_ns() - 10_001 * MS)
    assert Controller(host, "none", 8).update() == {1: 1, 2: 0, 3: 1}
    assert order({1: JOB}, {}, "none", NOW) == []


def test_a_size_that_nobody_told_is_that_of_the_burst_before() -> None:
    unknown = KnownJob(bytes=0, gap_ns=50 * MS)
    bursts = {1: PriorityBurst(300_000, 900 * MS, NOW, 400_000, 2, True), 2: burst(800_000)}
    assert order({1: unknown, 2: JOB}, bursts, "none", NOW) == [1, 2]


def test_jobs_that_share_no_link_do_not_matter_to_each_other() -> None:
    """Sincronia's order over two links: what is alone on its link is never in the way."""
    jobs = {
        1: KnownJob(3_000_000, 50 * MS, (0,)),
        2: KnownJob(1_000_000, 50 * MS, (0,)),
        3: KnownJob(9_000_000, 50 * MS, (1,)),
    }
    found = order(jobs, {1: burst(0), 2: burst(0), 3: burst(0)}, "none", NOW)
    assert found.index(2) < found.index(1)


@pytest.mark.parametrize("weighting", ["none", "remaining-more", "remaining-less", "layer", "idle"])
def test_a_burst_that_is_sent_has_no_place(weighting: str) -> None:
    """One of which nobody knows how long it is isn't first for that."""
    bursts = {1: burst(1_000_000), 2: burst(10), 3: burst(900_000)}
    jobs = dict.fromkeys(bursts, JOB) | {3: replace(JOB, bytes=0)}
    assert sorted(order(jobs, bursts, weighting, NOW)) == [2, 3]
    bursts[2] = burst(500_000)
    assert order(jobs, bursts, "none", NOW) == [2, 3]
