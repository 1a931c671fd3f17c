# SPDX-License-Identifier: BSD-2-Clause
"""The controller: hears bursts, orders them, gives jobs their levels."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from mltcp_tools.live.priorities.coflows import CoflowProgress, bssi, levels, weight
from mltcp_tools.live.priorities.maps import KnownJob, Maps, PriorityBurst

WAKE_S = 0.1
"""Between signs of life, and looks at what no event tells: progress changes some weights."""
LEAST_S = 0.01
"""At least between looks, and between what a host says, that no event calls for."""


def order(
    jobs: Mapping[int, KnownJob], bursts: Mapping[int, PriorityBurst], weighting: str, now_ns: int
) -> list[int]:
    """The jobs that have yet to send some of these bursts, in Sincronia's order, first to last.

    Bursts that are alike go in the order in which they began. The emulated jobs' bursts are one
    tensor each, so that `layer` tells them apart no more than `none` does.
    """
    going = [job for job, burst in bursts.items() if _size(jobs[job], burst) > burst.sent]
    going.sort(key=lambda job: bursts[job].began_ns)
    demands, weights = [], []
    for job in going:
        burst, size = bursts[job], _size(jobs[job], bursts[job])
        left = size - burst.sent
        demands.append(dict.fromkeys(jobs[job].ports, float(left)))
        progress = CoflowProgress(remaining=left / size, idle_s=(now_ns - burst.began_ns) * 1e-9)
        weights.append(weight(weighting, progress))
    return [going[place] for place in bssi(demands, weights)]


def _size(known: KnownJob, burst: PriorityBurst) -> int:
    """Bytes of the burst; where nobody knows them, it is halfway."""
    return known.bytes or burst.before or 2 * burst.sent + 1


class Known(Protocol):
    """The jobs that a controller gives levels to, of one host (Maps), or many (coordinator.py)."""

    def jobs(self) -> Mapping[int, KnownJob]:
        """All jobs."""

    def burst(self, job: int) -> PriorityBurst | None:
        """Return the progress of a job, None before its first packet."""

    def set_level(self, job: int, level: int) -> None:
        """Give a job a level."""


class Controller:
    """Keeps the levels of the jobs in `maps` to the order of their bursts. wait_s: seconds until it
    should look again if no burst begins: a gap ends one, which is no event."""

    def __init__(self, maps: Known, weighting: str, count: int) -> None:
        self._maps = maps
        self._weighting = weighting
        self._count = count
        self._going: dict[int, int] = {}
        self._given: dict[int, int] = {}
        self.wait_s = WAKE_S

    def update(self) -> dict[int, int]:
        """Order the bursts that go on; returns the levels of all jobs as they are then.

        A job that doesn't send is given the level behind the last, where its next burst most often
        belongs: so its first packets don't get in the way before the controller has heard of it.
        One that has sent its burst keeps its level until the gap has passed: bytes that were sent
        again count, too, so that its last packets may follow.
        """
        jobs = self._maps.jobs()
        read = {job: burst for job in jobs if (burst := self._maps.burst(job)) is not None}
        now_ns = time.monotonic_ns()
        left_ns = {job: burst.last_ns + jobs[job].gap_ns - now_ns for job, burst in read.items()}
        bursts = {job: each for job, each in read.items() if each.active and left_ns[job] >= 0}
        going = order(jobs, bursts, self._weighting, now_ns)
        self._going = levels(going, self._count, self._going)
        behind = min(self._count - 1, max(self._going.values(), default=-1) + 1)
        kept = {job: self._given.get(job, behind) for job in bursts}
        wanted = dict.fromkeys(jobs, behind) | kept | self._going
        for job, level in wanted.items():
            if self._given.get(job) != level:
                self._maps.set_level(job, level)
        self._given = wanted
        self.wait_s = max(LEAST_S, min([WAKE_S, *(left_ns[job] * 1e-9 for job in bursts)]))
        return wanted


def run_controller(folder: Path, weighting: str, count: int, stopped: Callable[[], bool]) -> None:
    """Serve the maps pinned in `folder` until `stopped` says so, looked at every 100 ms; then all
    jobs are alike again."""
    with Maps(folder) as maps:
        controller, reader = Controller(maps, weighting, count), maps.reader()
        try:
            while not stopped():
                maps.live()
                controller.update()
                reader.poll(controller.wait_s)
        finally:
            maps.die()
            reader.close()
