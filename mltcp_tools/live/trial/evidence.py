# SPDX-License-Identifier: BSD-2-Clause
"""The proof by the rounds of a trial: the difference, its interval, and how likely chance made it.

The test is the one that the drawing itself justifies (R. A. Fisher, The Design of Experiments,
chapter 3): were there no difference, each round would have given the same two figures in any order,
so the observed mean is compared with those of all orders that might have been drawn. The interval
holds every difference that this test doesn't refuse. Nothing is assumed of how the figures are
distributed, nor that a round resembles the next.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist, fmean, stdev

from mltcp_tools.live.trial.order import ENUMERATED, Order, draw

LEVEL = 0.05
"""A difference is claimed where chance makes one as large in fewer than this share of trials."""

POWER = 0.8
"""Share of trials that find a difference of the size that is called visible."""

_STEPS = 50
_NEAR = 1e-12
_TRIALS, _ORDERS, _PRECISION = 200, 400, 0.02
"""Of the simulation that tells what a trial can see."""


@dataclass(frozen=True)
class Difference:
    """Differences of iterations with mltcp, longer above 0, as logarithms of ratios.

    mean: of the rounds. low, high: the interval of 95 %, infinite where too few rounds were valid.
    p: how likely chance makes a difference at least as large. rounds: valid ones.
    """

    mean: float
    low: float
    high: float
    p: float
    rounds: int

    @property
    def proven(self) -> bool:
        """Return whether a difference may be claimed."""
        return self.p <= LEVEL

    @property
    def bounded(self) -> bool:
        """Return whether there were rounds enough for an interval."""
        return math.isfinite(self.low) and math.isfinite(self.high)


def share(logarithm: float) -> float:
    """A log ratio as a change of the time: -0.05 is 5 % shorter."""
    return math.expm1(logarithm) if logarithm < 700 else math.inf


def interval(longer: Difference) -> str:
    """`-5.0 % [-6.1, -3.9]`; without the interval where there is none."""
    mean = f"{100 * share(longer.mean):+.1f} %"
    if not longer.bounded:
        return mean
    return f"{mean} [{100 * share(longer.low):+.1f}, {100 * share(longer.high):+.1f}]"


class Flips:
    """For each order that might have been, which of the valid rounds it would have turned round."""

    def __init__(self, order: Order, valid: Sequence[int], most: int = ENUMERATED) -> None:
        self._flipped = [
            [number for number, index in enumerate(valid) if other[index] != order.first[index]]
            for other in order.others(most)
        ]

    def share(self, values: Sequence[float], sign: int) -> float:
        """Share of the orders whose mean is at least as far to that side (1: above) as was seen."""
        near = _NEAR * sum(abs(each) for each in values)
        # Turning rounds round takes twice their sum off.
        as_far = sum(
            sign * sum(values[index] for index in flipped) <= near for flipped in self._flipped
        )
        return as_far / len(self._flipped)


def difference(values: Sequence[float], order: Order, valid: Sequence[int]) -> Difference:
    """The evidence of rounds. values: log ratios of mltcp to the base, of the rounds `valid`."""
    if not values:
        return Difference(0.0, -math.inf, math.inf, 1.0, 0)
    flips = Flips(order, valid)
    p = min(1.0, 2 * min(flips.share(values, 1), flips.share(values, -1)))
    return Difference(
        mean=fmean(values),
        low=_bound(values, flips, -1),
        high=_bound(values, flips, 1),
        p=p,
        rounds=len(values),
    )


def _bound(values: Sequence[float], flips: Flips, side: int) -> float:
    """The end of the interval on that side (1: the upper one).

    A true difference is refused there once fewer than half of LEVEL of the orders are as far off.
    """
    mean = fmean(values)

    def refused(shift: float) -> bool:
        moved = [each - mean - side * shift for each in values]
        return flips.share(moved, -side) <= LEVEL / 2

    spread = max(abs(each - mean) for each in values)
    if not refused(4 * spread + 1.0):
        return side * math.inf
    near, far = 0.0, 4 * spread + 1.0
    for _ in range(_STEPS):
        middle = (near + far) / 2
        if refused(middle):
            far = middle
        else:
            near = middle
    return mean + side * far


def of_iterations(with_s: Sequence[float], without_s: Sequence[float]) -> Difference:
    """The difference of single iterations, one stretch with mltcp and one without beside it.

    Normal, by the spread of the iterations and of blocks of them; at least four of each.
    """
    mean = math.log(fmean(with_s) / fmean(without_s))
    spreads = (spread_of_periods(each, len(each)) / math.sqrt(2) for each in (with_s, without_s))
    spread = max(math.hypot(*spreads), _NEAR)
    reach = spread * NormalDist().inv_cdf(1 - LEVEL / 2)
    p = 2 * NormalDist().cdf(-abs(mean) / spread)
    return Difference(mean, mean - reach, mean + reach, p, 1)


def visible(spread: float, rounds: int) -> float:
    """The difference that a trial of so many rounds finds with POWER.

    spread: standard deviation of one round's value.
    """
    return spread * _multiple(rounds)


@cache
def _multiple(rounds: int) -> float:
    """The same in standard deviations, by trials drawn with normal values, the same always."""
    source = random.Random(rounds)
    flips = Flips(draw(rounds, source), range(rounds), _ORDERS)
    trials = [[source.gauss(0, 1) for _ in range(rounds)] for _ in range(_TRIALS)]
    low, high = 0.0, 4.0
    while high - low > _PRECISION:
        middle = (low + high) / 2
        found = sum(
            flips.share([each + middle for each in values], 1) <= LEVEL / 2 for values in trials
        )
        low, high = (low, middle) if found >= POWER * len(trials) else (middle, high)
    return high


def spread_of_periods(times_s: Sequence[float], per_period: int) -> float:
    """The standard deviation to be expected of a round's value, by iterations seen beforehand.

    Blocks of iterations tell how much slower noise, which lasts over several, adds: means of blocks
    vary less with the blocks' length only as far as iterations don't depend on each other. What
    changes more slowly than was looked shows in the trial itself.
    """
    mean = fmean(times_s)
    largest = 0.0
    size = 1
    while len(times_s) // size >= 4:
        blocks = [fmean(times_s[at : at + size]) for at in range(0, len(times_s) - size + 1, size)]
        largest = max(largest, stdev(blocks) * math.sqrt(size))
        size *= 2
    # Two periods are compared.
    return math.sqrt(2 / max(1, per_period)) * largest / mean
