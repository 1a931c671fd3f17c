"""The rhythm of a job from its flows alone: finished bursts in, Metadata out.

The kernel reports a burst whenever a flow was silent for the job's gap. While nothing is known of
the job, that gap is PROBE_GAP_S, far too short for an iteration of many bursts; here bursts are
put together again. A silence longer than a threshold ends an iteration, one shorter doesn't, and
of all thresholds that one is right under which iterations are most alike, in bytes and in length.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt
from statistics import fmean, median

from mltcp_tools.attach.sources.metadata import Metadata
from mltcp_tools.backends.base import IterationEvent

PROBE_GAP_S = 0.02
"""The gap of a job of which nothing is known: silences shorter than this end no iteration."""

_KEPT = 256
_FLOWS = 256
_LEAST = 5
_JUMP = 1.3
_CANDIDATES = 8
_BETTER = 0.05
_GAP_MIN_S = 1e-3
_NEAR = 0.8


@dataclass(frozen=True)
class Burst:
    """What one flow sent between two silences. Times are seconds of CLOCK_MONOTONIC."""

    begin_s: float
    end_s: float
    bytes: int


class FlowBursts:
    """The latest bursts of each of a job's flows; the busiest flow's are taken for the job's."""

    def __init__(self) -> None:
        self._kept: dict[int, deque[Burst]] = {}
        self._latest: dict[int, int] = {}

    def add(self, event: IterationEvent) -> None:
        """A finished burst. A flow's first one began before it was watched, so it is left out."""
        expected = self._latest.get(event.cookie, 0) + 1
        self._latest.pop(event.cookie, None)
        self._latest[event.cookie] = event.iteration  # the flow heard last stands last
        if event.iteration != expected:
            self._kept.pop(event.cookie, None)  # some were lost, or the flow was tagged anew
        if event.iteration > 1:
            kept = self._kept.setdefault(event.cookie, deque(maxlen=_KEPT))
            kept.append(Burst(event.first_ack_s, event.last_ack_s, event.bytes))
        while len(self._latest) > _FLOWS:
            oldest = next(iter(self._latest))
            del self._latest[oldest]
            self._kept.pop(oldest, None)

    def metadata(self, period_s: float | None = None) -> Metadata | None:
        """What the bursts say; None while there are too few.

        period_s: what a better source knows; bursts are then put together to that period, and where
        no threshold does that, the gap is 0: unknown.
        """
        if not self._kept:
            return None
        busiest = max(self._kept.values(), key=lambda kept: sum(each.bytes for each in kept))
        return learn(list(busiest), period_s)


def learn(bursts: Sequence[Burst], period_s: float | None = None) -> Metadata | None:
    """The period, bytes and gap in one flow's bursts, oldest first; see FlowBursts.metadata."""
    groupings = [found for t in _thresholds(bursts) if (found := _group(bursts, t)) is not None]
    if not groupings:
        return None
    best = groupings[0]
    if period_s is None:
        for each in groupings[1:]:
            if each.spread < best.spread - _BETTER:
                best = each
    else:
        best = min(groupings, key=lambda each: abs(each.period_s - period_s))
    size, confidence = best.bytes, best.confidence
    if period_s is not None and not _NEAR < best.period_s / period_s < 1 / _NEAR:
        # No threshold tells the iterations apart, but so many bytes went over the wire in each.
        span = bursts[-1].begin_s - bursts[0].begin_s
        size = round(sum(each.bytes for each in bursts[:-1]) / span * period_s)
        return Metadata("flow", period_s, size, 0.0, min(1.0, span / period_s / 10), best.count)
    return Metadata(
        source="flow",
        period_s=best.period_s,
        bytes_per_iteration=size,
        gap_s=best.gap_s,
        confidence=confidence,
        iterations_seen=best.count,
    )


@dataclass(frozen=True)
class _Grouping:
    """Bursts put together to iterations: medians, and how unlike the iterations are (0: alike)."""

    count: int
    period_s: float
    bytes: int
    gap_s: float
    spread: float

    @property
    def confidence(self) -> float:
        return max(0.0, 1 - 2 * self.spread) * min(1.0, self.count / _LEAST / 2)


def _silences(bursts: Sequence[Burst]) -> list[float]:
    return [max(0.0, after.begin_s - before.end_s) for before, after in pairwise(bursts)]


def _thresholds(bursts: Sequence[Burst]) -> Iterator[float]:
    """0, under which every burst is an iteration, then where silences jump the most in length."""
    yield 0.0
    ordered = sorted(each for each in _silences(bursts) if each > 0)
    jumps = [(high / low, sqrt(high * low)) for low, high in pairwise(ordered)]
    jumps = sorted((jump for jump in jumps if jump[0] >= _JUMP), reverse=True)[:_CANDIDATES]
    yield from sorted(threshold for _, threshold in jumps)


def _group(bursts: Sequence[Burst], threshold_s: float) -> _Grouping | None:
    """The bursts with silences up to the threshold closed; None with too few iterations left.

    The first iteration and the last one may be cut off, and are left out.
    """
    if not bursts:
        return None
    begins, sizes = [bursts[0].begin_s], [bursts[0].bytes]
    inner, outer = [0.0], []
    for burst, silence in zip(bursts[1:], _silences(bursts), strict=True):
        if silence > threshold_s:
            outer.append(silence)
            begins.append(burst.begin_s)
            sizes.append(0)
        else:
            inner.append(silence)
        sizes[-1] += burst.bytes
    whole = sizes[1:-1]
    if len(whole) < _LEAST:
        return None
    periods = [after - before for before, after in pairwise(begins[1:])]
    period, size = median(periods), median(whole)
    if period <= 0 or size <= 0:
        return None
    spread = _spread(periods, period) + _spread(whole, size)
    return _Grouping(len(whole), period, round(size), _gap(max(inner), outer), spread)


def _spread(values: Sequence[float], typical: float) -> float:
    """How far values are from the typical one on average, as a share; one in ten may be astray."""
    away = sorted(abs(each - typical) for each in values)
    return fmean(away[: len(away) - len(away) // 10]) / typical


def _gap(longest_inner_s: float, outer_s: Sequence[float]) -> float:
    """Half the idle time, short ones included, but above what lies within an iteration."""
    idle = sorted(outer_s)[len(outer_s) // 10]
    gap = idle / 2 if idle / 2 > longest_inner_s else sqrt(idle * longest_inner_s)
    return max(_GAP_MIN_S, gap)
