# SPDX-License-Identifier: BSD-2-Clause
"""The jobs of several hosts as one controller finds them."""

from __future__ import annotations

import json
import time
from typing import Any, cast

from mltcp_tools.live.priorities.coordinator import Hosts, PriorityHost
from mltcp_tools.live.priorities.host_side import state_from, state_of
from mltcp_tools.live.priorities.maps import KnownJob, Maps, PriorityBurst

NOW = 10**12


class FakeHost:
    def __init__(self, jobs: dict[int, KnownJob], bursts: dict[int, PriorityBurst]) -> None:
        self.jobs, self.bursts = jobs, bursts


class FakeMaps(FakeHost):
    def __init__(self, jobs: dict[int, KnownJob], bursts: dict[int, PriorityBurst]) -> None:
        self._all, self._bursts = jobs, bursts

    def jobs(self) -> dict[int, KnownJob]:  # type: ignore[override]
        return self._all

    def burst(self, job: int) -> PriorityBurst | None:
        return self._bursts.get(job)


def hosts(*found: FakeHost) -> Hosts:
    return Hosts(cast("list[PriorityHost]", list(found)))


def test_a_job_goes_on_while_it_does_somewhere() -> None:
    """The part that is over tells neither when it began nor when it last sent."""
    over = FakeHost({1: KnownJob(0, 5)}, {1: PriorityBurst(90, NOW - 99, NOW - 50, 90, 3, False)})
    going = FakeHost({1: KnownJob(300, 5)}, {1: PriorityBurst(10, NOW - 7, NOW - 1, 290, 3, True)})
    both = hosts(over, going)
    assert both.burst(1) == PriorityBurst(100, NOW - 7, NOW - 1, 380, 3, True)
    assert both.jobs()[1].bytes == 0  # not known on one of them


def test_what_a_host_says_is_told_in_ages() -> None:
    """Its clock is its own: a burst that is a millisecond old there is so here."""
    now = time.monotonic_ns()
    burst = PriorityBurst(40, now - 10**9, now - 10**6, 90, 3, True)
    jobs = {7: KnownJob(100, 10**8, (0, 3)), 8: KnownJob(100, 5)}
    said: dict[str, Any] = state_of(cast(Maps, FakeMaps(jobs, dict.fromkeys(jobs, burst))))
    known, found = state_from(json.loads(json.dumps(said)), NOW)
    assert known == jobs
    assert found[7].last_ns - found[7].began_ns == 10**9 - 10**6
    assert found[7].last_ns <= NOW - 10**6
    assert (found[7].sent, found[7].before, found[7].number, found[7].active) == (40, 90, 3, True)
    assert not found[8].active  # its gap has passed
