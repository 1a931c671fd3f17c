# SPDX-License-Identifier: BSD-2-Clause
"""FaPES' goals, and those that a comparison reaches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mltcp_tools.clusters.fapes.compare import Result
from mltcp_tools.clusters.intervals import interval

SHORTER, MORE = 0.248, 1.8
"""By which share completion times are to be lower, and how many times the static work."""
KEPT = 0.95
"""The least share of requests within the objective with which it counts as kept."""


@dataclass(frozen=True)
class Goal:
    """A goal: the value to be reached, and the one that was.

    wanted, reached: shares or factors, as `what` says. half: of its 95 % interval over draws, NaN
    with one. possible: what `reached` could be at most, None where nothing says. met: share of
    requests within the objective under FaPES, None where that isn't what the goal is about.
    """

    what: str
    wanted: float
    reached: float
    half: float
    possible: float | None = None
    met: float | None = None

    @property
    def verdict(self) -> str:
        """`holds` or `missed` where the whole interval says so, else `open`; that the objective
        isn't kept, whatever others do, where it isn't."""
        if self.met is not None and self.met < KEPT:
            return f"not kept: {self.met:.0%} of requests"
        half = self.half if self.half == self.half else 0.0
        if self.reached - half >= self.wanted and self.reached > half:
            return "holds"
        return "missed" if self.reached + half < self.wanted or not half else "open"

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        half = None if self.half != self.half else self.half
        return vars(self) | {"half": half, "verdict": self.verdict}


def goals(draws: Sequence[Sequence[Result]]) -> list[Goal]:
    """FaPES against the static split under Knative's autoscaler with either order of jobs, against
    Lyra, and against a tuned autoscaler; each draw has all variants.

    Work done can't exceed the GPUs that inference left, as long as jobs are no faster per GPU than
    alone with what they asked for.
    """
    variants = [{each.variant: each for each in draw} for draw in draws]

    def below(other: str) -> Goal:
        times = [{a: _completion_s(each) for a, each in draw.items()} for draw in variants]
        mean, half = interval([1 - draw["fapes"] / draw[other] for draw in times])
        return Goal(f"completion below {other}", SHORTER, mean, half)

    def slo_over(other: str) -> Goal:
        mean, half = interval(
            [d["fapes"].served.slo_attainment - d[other].served.slo_attainment for d in variants]
        )
        met = float(np.mean([each["fapes"].served.slo_attainment for each in variants]))
        return Goal(f"SLO met, above {other}", 0.0, mean, half, met=met)

    more, half = interval([d["fapes"].work_done / d["static"].work_done for d in variants])
    possible, _ = interval([d["fapes"].left_gpus / d["static"].work_done for d in variants])
    return [
        below("static"),
        below("static-elastic"),
        below("lyra"),
        below("fapes-kpa"),
        Goal("work done over static", MORE, more, half, possible),
        slo_over("static"),
        slo_over("fapes-kpa"),
    ]


def _completion_s(result: Result) -> float:
    return float(result.training.summary()["completion_mean_s"])
