# SPDX-License-Identifier: BSD-2-Clause
"""Iterations in how far connections have come: for any congestion control, and without touching it.

Somebody samples at the connections every few milliseconds. A job sends, computes, sends: where
enough bytes of an iteration have gone and then nothing for a while, the iteration has ended. The
same look serves jobs with and without MLTCP, so that both are measured alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from mltcp_tools.live.sources.calls import Call, find_iterations

_WHOLE = 0.7
"""Share of an iteration's usual bytes by which it may end: a pause within one (a timeout of TCP)
comes earlier, and iterations are not all of the same size."""

_CONFIDENT = 0.5
_LOOKS = 2.5
"""So many samples without a byte are a pause; one is chance."""


@dataclass(frozen=True)
class Sample:
    """The findings of a sample. at_s: CLOCK_MONOTONIC. moved: bytes so far, sent and received, of
    all.

    quiet_s: since the last of them, as far as the kernel's clock tells.
    """

    at_s: float
    moved: int
    quiet_s: float


@dataclass(frozen=True)
class Rhythm:
    """The shape of a job's iterations. size: bytes. gap_s: silence that ends one."""

    period_s: float
    size: float
    gap_s: float
    confidence: float


@dataclass(frozen=True)
class Iteration:
    """One iteration, or several between which no pause was seen.

    start_s: when the one before had moved all; begin_s, end_s: its first and last byte.
    """

    start_s: float
    begin_s: float
    end_s: float
    size: int
    count: int

    @property
    def duration_s(self) -> float:
        """Of each of them, on average."""
        return (self.end_s - self.start_s) / self.count

    @property
    def silent_s(self) -> float:
        """Return the time for which the job only computed before."""
        return self.begin_s - self.start_s


@dataclass(frozen=True)
class Burst:
    """A stretch in which bytes moved: from the first to the last, and how many."""

    begin_s: float
    end_s: float
    size: int


def bursts(samples: Sequence[Sample]) -> list[Burst]:
    """The stretches in which bytes moved from look to look."""
    found: list[Burst] = []
    if len(samples) < 3:
        return found
    pause_s = _LOOKS * (samples[-1].at_s - samples[0].at_s) / (len(samples) - 1)
    for before, now in pairwise(samples):
        size = now.moved - before.moved
        if size <= 0:
            continue
        end_s = max(before.at_s, now.at_s - now.quiet_s)
        if found and before.at_s - found[-1].end_s < pause_s:
            found[-1] = Burst(found[-1].begin_s, end_s, found[-1].size + size)
        else:
            found.append(Burst(before.at_s, end_s, size))
    return found


def rhythm(samples: Sequence[Sample]) -> Rhythm | None:
    """The iterations that repeat in these samples; None where nothing does, or no pause is seen."""
    seen = bursts(samples)[1:-1]  # these may be parts
    found = find_iterations([Call(each.begin_s, each.end_s, "", each.size) for each in seen])
    if found is None or found.confidence < _CONFIDENT or not found.sent_bytes:
        return None
    pauses = [after.begin_s - before.end_s for before, after in pairwise(seen)]
    longer = sorted(each for each in pauses if each >= found.gap_s / 2)
    if not longer:
        return None
    # Half of the usual pause, lest a late or an early one makes two iterations of one or none.
    gap_s = longer[len(longer) // 2] / 2
    return Rhythm(found.period_s, found.sent_bytes, gap_s, found.confidence)


class IterationDetector:
    """Finds the iterations of a known rhythm in samples, as they come."""

    def __init__(self, known: Rhythm) -> None:
        self.rhythm = known
        self._before: Sample | None = None
        self._end_s: float | None = None
        """Of the iteration before."""
        self._begin_s = self._last_s = 0.0
        self._size = 0

    def add(self, sample: Sample) -> Iteration | None:
        """Take a sample; the iteration that is complete by it, if one is."""
        before, self._before = self._before, sample
        if before is None:
            self._last_s = sample.at_s
            return None
        size = sample.moved - before.moved
        iteration = None
        if size > 0:
            iteration = self._ended(before.at_s)
            if not self._size:
                self._begin_s = before.at_s
            self._size += size
            self._last_s = max(before.at_s, sample.at_s - sample.quiet_s)
        return iteration or self._ended(sample.at_s)

    def _ended(self, now_s: float) -> Iteration | None:
        """The iteration that the silence up to now has ended; the very first is a part of one."""
        enough = self._size >= _WHOLE * self.rhythm.size
        if not enough or now_s - self._last_s < self.rhythm.gap_s:
            return None
        start_s, self._end_s = self._end_s, self._last_s
        size, self._size = self._size, 0
        if start_s is None:
            return None
        count = max(1, round(size / self.rhythm.size))
        return Iteration(start_s, self._begin_s, self._end_s, size, count)


def best_rhythm(series: Iterable[tuple[int, Sequence[Sample]]]) -> tuple[int, Rhythm] | None:
    """Of several series of samples the one that repeats best, and its rhythm; None where none does.

    The connections of a job may take turns, so that together they are never quiet.
    """
    found = [(number, known) for number, samples in series if (known := rhythm(samples))]
    return max(found, key=lambda each: each[1].confidence, default=None)
