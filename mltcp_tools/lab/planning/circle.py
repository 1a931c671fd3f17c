# SPDX-License-Identifier: BSD-2-Clause
"""The unified circle: iterations of different lengths on one perimeter (Cassini, section 4.1).

Its perimeter is the least common multiple of the iteration times. Measured times have none, so each
is stretched a little, by waiting at its end, until they do: a job can wait for its next slot, but
not hurry. What the stretch costs is part of every plan.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mltcp_tools.base.errors import UsageError
from mltcp_tools.lab.planning.profile import Floats, Profile

MAX_STEPS = 200_000


@dataclass(frozen=True)
class Circle:
    """Jobs on one perimeter, cut into equal steps.

    perimeter_s: its length in seconds. steps: how many parts it has. repeats: job -> iterations on
    it; steps is a multiple of each. stretch: job -> share by which waiting lengthens an iteration.
    demand, back: job -> rate in bit/s in each step of one iteration, in one direction and in the
    other.
    """

    perimeter_s: float
    steps: int
    repeats: Mapping[str, int]
    stretch: Mapping[str, float]
    demand: Mapping[str, Floats]
    back: Mapping[str, Floats]

    @property
    def step_s(self) -> float:
        """Seconds per step."""
        return self.perimeter_s / self.steps

    def period_steps(self, job: str) -> int:
        """Steps per iteration of `job`."""
        return self.steps // self.repeats[job]

    def of(self, jobs: Sequence[str]) -> Circle:
        """The circle of some of the jobs, with the same steps: shorter where that is enough."""
        times = math.gcd(*(self.repeats[job] for job in jobs))
        return Circle(
            self.perimeter_s / times,
            self.steps // times,
            {job: self.repeats[job] // times for job in jobs},
            {job: self.stretch[job] for job in jobs},
            {job: self.demand[job] for job in jobs},
            {job: self.back[job] for job in jobs},
        )


def make_circle(profiles: Sequence[Profile], angle_deg: float, tolerance: float) -> Circle:
    """The smallest circle for these jobs.

    angle_deg: the widest a step may be on any job's own circle. tolerance: the largest share by
    which an iteration may be stretched. Raises UsageError where the circle would have more than
    MAX_STEPS steps.
    """
    periods = np.array([profile.period_s for profile in profiles])
    perimeter_s = common_multiple(periods, tolerance)
    counts = [int(count) for count in _repeats(periods, perimeter_s)]
    base = math.lcm(*counts)
    steps = base * math.ceil(max(counts) * 360 / angle_deg / base)
    if steps > MAX_STEPS:
        raise UsageError(
            f"The iteration times of {_named(profiles)} have no common multiple that fits a circle"
            f" of {MAX_STEPS} steps (it would take {steps}); allow more --tolerance than"
            f" {tolerance:.2%}."
        )
    names = [profile.name for profile in profiles]
    stretched = [perimeter_s / count for count in counts]

    def demands(back: bool) -> dict[str, Floats]:
        return {
            profile.name: profile.demand(steps // count, period_s, back)
            for profile, count, period_s in zip(profiles, counts, stretched, strict=True)
        }

    return Circle(
        perimeter_s=perimeter_s,
        steps=steps,
        repeats=dict(zip(names, counts, strict=True)),
        stretch={
            profile.name: max(0.0, period_s / profile.period_s - 1)
            for profile, period_s in zip(profiles, stretched, strict=True)
        },
        demand=demands(back=False),
        back=demands(back=True),
    )


def common_multiple(periods: Floats, tolerance: float) -> float:
    """The least time that is a multiple of every period, each stretched by at most `tolerance`.

    periods: seconds, shape (jobs,). Returns seconds. A multiple at most 1 / tolerance times as long
    as the longest period always exists.
    """
    # The answer is r periods of some job, unstretched: below that, this job's r iterations don't
    # fit. Times at which all fit begin at such points; try them in order.
    # Multiplication rounds: equal multiples may differ in their last bits.
    slack = 1e-9
    longest = float(periods.max())
    distinct = np.unique(periods)
    limit_s = longest
    while True:
        limit_s *= 2
        candidates = np.unique(
            np.concatenate([p * np.arange(1, math.ceil(limit_s / p) + 1) for p in distinct])
        )
        candidates = candidates[(candidates >= longest * (1 - slack)) & (candidates <= limit_s)]
        fits = np.ones(candidates.size, dtype=bool)
        for period in distinct:
            count = np.floor(candidates / period * (1 + slack))
            fits &= candidates <= count * period * (1 + tolerance + slack)
        if fits.any():
            return float(candidates[fits.argmax()])
        if limit_s > longest * 1e4:
            raise UsageError(
                "The iteration times have no common multiple below ten thousand times the longest;"
                " allow more --tolerance."
            )


def _repeats(periods: Floats, perimeter_s: float) -> Floats:
    return np.floor(perimeter_s / periods * (1 + 1e-9))


def _named(profiles: Sequence[Profile]) -> str:
    names = [profile.name for profile in profiles]
    return ", ".join(names[:4]) + (f" and {len(names) - 4} others" if len(names) > 4 else "")
