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
_LEAST_S = 0.01


def order(
    jobs: Mapping[int, KnownJob], bursts: Mapping[int, PriorityBurst], weighting: str, now_ns: int
) -> list[int]:
    """The jobs whose bursts go on, in Sincronia's order, first to last.

    Bursts that are alike go in the order in which they began. The emulated jobs' bursts are one
    tensor each, so that `layer` tells them apart no more than `none` does.
    """
    going = [job for job, burst in bursts.items() if _goes_on(jobs[job], burst, now_ns)]
    going.sort(key=lambda job: bursts[job].began_ns)
    demands, weights = [], []
    for job in going:
        known, burst = jobs[job], bursts[job]
        size = known.bytes or burst.before or burst.sent
        left = max(1, size - burst.sent)
        demands.append(dict.fromkeys(known.ports, float(left)))
        progress = CoflowProgress(
            remaining=left / max(size, left), idle_s=(now_ns - burst.began_ns) * 1e-9
        )
        weights.append(weight(weighting, progress))
    return [going[place] for place in bssi(demands, weights)]


def _goes_on(known: KnownJob, burst: PriorityBurst, now_ns: int) -> bool:
    return burst.active and now_ns - burst.last_ns <= known.gap_ns


class Known(Protocol):
    """The source of a controller's knowledge, to which it gives levels: a host's maps, or the hosts
    (coordinator.py).
    """

    def jobs(self) -> Mapping[int, KnownJob]:
        """All jobs."""
        ...

    def burst(self, job: int) -> PriorityBurst | None:
        """Return the progress of a job, None before its first packet."""
        ...

    def set_level(self, job: int, level: int) -> None:
        """Give a job a level."""
        ...


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
        """
        jobs = self._maps.jobs()
        bursts = {job: burst for job in jobs if (burst := self._maps.burst(job)) is not None}
        now_ns = time.monotonic_ns()
        going = order(jobs, bursts, self._weighting, now_ns)
        self._going = levels(going, self._count, self._going)
        behind = min(self._count - 1, max(self._going.values(), default=-1) + 1)
        wanted = dict.fromkeys(jobs, behind) | self._going
        for job, level in wanted.items():
            if self._given.get(job) != level:
                self._maps.set_level(job, level)
        self._given = wanted
        gaps_ns = [bursts[job].last_ns + jobs[job].gap_ns - now_ns for job in going]
        self.wait_s = max(_LEAST_S, min([WAKE_S, *(gap_ns * 1e-9 for gap_ns in gaps_ns)]))
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
