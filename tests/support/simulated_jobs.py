# SPDX-License-Identifier: BSD-2-Clause
"""Jobs whose iterations are drawn, for trials in virtual time."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from mltcp_tools.live.observe.iteration_detector import Iteration
from mltcp_tools.live.trial.period import BASE, MLTCP
from mltcp_tools.live.trial.surroundings import Counted, JobEnded, World


@dataclass
class Simulated:
    """A job. effect: log ratio of mltcp to the base. noise, slow: standard deviations (shares) of
    each iteration, and of what lasts for tens of them. drift: share per hour.
    """

    period_s: float = 0.5
    effect: float = 0.0
    noise: float = 0.05
    slow: float = 0.02
    drift: float = 0.1
    size: int = 1_000_000
    silent: float = 0.4
    ends_s: float = math.inf
    others: Callable[[float, str], float] = lambda now_s, variant: 0.0
    """The log ratio by which others slow it down, at a time under a variant."""
    stalls: Callable[[float, str], bool] = lambda now_s, variant: False


class SimulatedWorld(World):
    """The jobs, one iteration of each at a time, on a quiet host."""

    def __init__(self, seed: int, jobs: Mapping[str, Simulated]) -> None:
        self.jobs = dict(jobs)
        self.variant = BASE
        self.switches: list[tuple[float, str]] = []
        self._source = random.Random(seed)
        self._now = 1000.0
        self._slow = dict.fromkeys(jobs, 0.0)

    def now_s(self) -> float:
        return self._now

    def learn(self) -> Mapping[str, Sequence[Iteration]]:
        found: dict[str, list[Iteration]] = {job: [] for job in self.jobs}
        for _ in range(40):
            for job, iteration in self.wait():
                found[job].append(iteration)
        return found

    def switch(self, variant: str) -> None:
        if variant != self.variant:
            self.switches.append((self._now, variant))
        self.variant = variant

    def wait(self) -> list[tuple[str, Iteration]]:
        longest = 0.0
        found = []
        for name, job in self.jobs.items():
            if self._now > job.ends_s:
                raise JobEnded(f"{name} has ended.")
            slow = self._slow[name] = 0.97 * self._slow[name] + 0.24 * self._source.gauss(
                0, job.slow
            )
            effect = job.effect if self.variant == MLTCP else 0.0
            change = (
                effect
                + slow
                + job.others(self._now, self.variant)
                + self._source.gauss(0, job.noise)
            )
            length = job.period_s * math.exp(change + job.drift * self._now / 3600)
            longest = max(longest, length)
            if not job.stalls(self._now, self.variant):
                begin = self._now + job.silent * job.period_s
                found.append((name, Iteration(self._now, begin, self._now + length, job.size, 1)))
        self._now += longest
        return found

    def begin_period(self) -> int:
        return 0

    def end_period(self, period: int) -> Counted:
        return Counted([], {})

    def unlike(self, one: int, other: int) -> list[str]:
        return []
