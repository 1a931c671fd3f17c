# SPDX-License-Identifier: BSD-2-Clause
"""One period of a trial: what its iterations were, and whether it may go on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median

from mltcp_tools.base.units import format_seconds
from mltcp_tools.live.observe.iteration_detector import Iteration

BASE, MLTCP = "base", "mltcp"

_LATEST = 10
"""Iterations whose median is held against the limit."""

_FIRST = 5
"""Of a period, which aren't: the switch itself, and what collided because of it."""

_STALLED_S = 10.0
_STALLED_PERIODS = 10.0
_CHANGED = 0.2
"""Share by which the compute time or the bytes of a job's iterations are no longer the same."""

_LOOKS_S = 0.02
"""A compute time is known that well."""


class Ended(Exception):
    """The period can't go on. str(): why, a sentence."""


class Slower(Ended):
    """A job is slower than the limit allows. times_s: the iterations that show it."""

    def __init__(self, job: str, times_s: Sequence[float], limit_s: float) -> None:
        super().__init__(
            f"{job} took {format_seconds(median(times_s))} an iteration with mltcp, and"
            f" {format_seconds(limit_s)} is the limit."
        )
        self.job, self.times_s = job, times_s


class Stalled(Ended):
    """A job has stopped sending."""


@dataclass
class Measured:
    """A job's iterations in a period, those while it settled left out."""

    recorded: list[Iteration] = field(default_factory=list)
    retransmits: int = 0

    @property
    def iterations(self) -> int:
        """Return the number of iterations."""
        return sum(each.count for each in self.recorded)

    @property
    def mean_s(self) -> float:
        """Of their durations; what was missed between two of them counts."""
        return sum(each.duration_s * each.count for each in self.recorded) / self.iterations

    @property
    def times_s(self) -> list[float]:
        """The duration of each."""
        return [each.duration_s for each in self.recorded for _ in range(each.count)]

    @property
    def silent_s(self) -> float:
        """The usual compute time."""
        return median(each.silent_s for each in self.recorded)

    @property
    def size(self) -> float:
        """The usual bytes of one."""
        return median(each.size / each.count for each in self.recorded)


class Period:
    """The jobs for a while under one variant. number: by which the world knows it.

    limits_s: a job's longest tolerable iteration time.
    """

    def __init__(
        self,
        variant: str,
        number: int,
        begin_s: float,
        settle_s: float,
        periods_s: Mapping[str, float],
        limits_s: Mapping[str, float],
    ) -> None:
        self.variant, self.number = variant, number
        self.begin_s = begin_s
        self.jobs = {job: Measured() for job in periods_s}
        self.notes: list[str] = []
        """The reason why the period, and so its round, is discarded."""
        self._settled_s = begin_s + settle_s
        self._periods_s = periods_s
        self._limits_s = limits_s
        self._latest: dict[str, list[float]] = {job: [] for job in periods_s}
        self._last_s = dict.fromkeys(periods_s, begin_s)

    def add(self, job: str, iteration: Iteration) -> None:
        """Take an iteration. Raises Slower."""
        self._last_s[job] = max(iteration.end_s, self.begin_s)
        if iteration.start_s < self.begin_s:
            return
        if iteration.start_s >= self._settled_s:
            self.jobs[job].recorded.append(iteration)
        latest = self._latest[job]
        latest += [iteration.duration_s] * iteration.count
        limit_s = self._limits_s.get(job, math.inf)
        if len(latest) >= _FIRST + _LATEST and median(latest[-_LATEST:]) > limit_s:
            raise Slower(job, latest[-_LATEST:], limit_s)

    def check(self, now_s: float) -> None:
        """Raise Stalled where a job hasn't ended an iteration for too long."""
        for job, last_s in self._last_s.items():
            patience_s = max(_STALLED_S, _STALLED_PERIODS * self._periods_s[job])
            if now_s - last_s > patience_s:
                raise Stalled(f"{job} ended no iteration for {format_seconds(patience_s)}.")


def changes(periods: Sequence[Period]) -> list[str]:
    """Return sentences on the jobs' own changes from one period to the next, or within one.

    The bytes of an iteration and its compute time are the job's own doing, whichever congestion
    control it runs.
    """
    found = []
    for job in periods[0].jobs:
        spans = [half for period in periods for half in _halves(period.jobs[job])]
        if len(spans) < 2 * len(periods):
            found.append(f"{job} made too few iterations to compare.")
            continue
        sizes = [each.size for each in spans]
        if max(sizes) > (1 + _CHANGED) * min(sizes):
            found.append(f"{job} changed the bytes of its iterations.")
        quiet = [each.silent_s for each in spans]
        if max(quiet) > (1 + _CHANGED) * min(quiet) + _LOOKS_S:
            found.append(
                f"{job} changed how long it computes, from {format_seconds(min(quiet))} to"
                f" {format_seconds(max(quiet))}."
            )
    return found


def _halves(whole: Measured) -> Iterable[Measured]:
    middle = len(whole.recorded) // 2
    if middle:
        yield Measured(whole.recorded[:middle])
        yield Measured(whole.recorded[middle:])


def log_ratio(base: Measured, mltcp: Measured) -> float:
    """Return the logarithm of the ratio of iterations with mltcp to those without."""
    return math.log(mltcp.mean_s / base.mean_s)


def percentile(times_s: Sequence[float], share: float) -> float:
    """The time that the share of them doesn't exceed."""
    ordered = sorted(times_s)
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]


def mean(periods: Iterable[Measured]) -> float:
    """Of the iterations of several periods."""
    return fmean(time for period in periods for time in period.times_s)
