# SPDX-License-Identifier: BSD-2-Clause
"""Iterations told apart by their bytes: the same number between quiet gaps, again and again.

Collisions stretch iterations and timeouts cut them up, so that they hardly resemble each other any
more; what they carry stays the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mltcp_tools.lab.profiling.capture import Series
from mltcp_tools.lab.profiling.profile import Floats

# The shortest gap, as a share of the period.
_GAP = 0.03
# How far the bytes of an iteration may be from those of others.
_OFF = 0.02
# Bytes per iteration are looked for within this of what the period makes likely; twice or half of
# it would fit, too.
_LOW, _HIGH = 0.7, 1.45
# Greetings and heartbeats, as a share of an iteration's bytes.
_CHATTER = 1e-3
# The middle half of gaps that are equally long lies this close together, as a share of one.
_EVEN = 0.3
_MOST_PARTS = 16
_FIRST = 30
_FOUND = 0.8


@dataclass(frozen=True)
class Iterations:
    """Iterations of a series: where each begins, in seconds; their mean length and bytes.

    even: whether the gaps between them are about equally long.
    """

    starts: Floats
    period_s: float
    bytes: float
    even: bool = False


@dataclass(frozen=True)
class _Gaps:
    """Quiet stretches: bytes sent up to each, and its begin and end in seconds."""

    levels: Floats
    begins: Floats
    ends: Floats

    def nearest(self, level: float, within: float) -> int | None:
        """The gap whose level is nearest, if that is less than `within` bytes away.

        Not the longest one there: a timeout before the last segments may be longer than computing.
        """
        number = int(np.argmin(np.abs(self.levels - level)))
        return number if abs(self.levels[number] - level) < within else None


def iterations_by_bytes(series: Series, period_s: float) -> Iterations | None:
    """The iterations of a series whose period is roughly known, or None where bytes don't tell.

    They begin in the middle of the gap before their first burst.
    """
    total = float(series.bytes.sum())
    likely = total * period_s / (series.bytes.size * series.width_s)
    gaps = _find_gaps(series, _GAP * period_s, _CHATTER * likely)
    best: tuple[float, float, list[tuple[int, int]]] = (_FOUND, 0.0, [])
    first = gaps.levels <= 1.5 * likely
    for offset in np.flatnonzero(first):
        size = _bytes_per_iteration(gaps, int(offset), likely)
        walked = _walk(gaps, int(offset), size, total)
        steps = walked[-1][0]
        if len(walked) < 3:
            continue
        share = round((len(walked) - 1) / steps, 2)
        quiet_s = float(np.mean([gaps.ends[gap] - gaps.begins[gap] for _, gap in walked[1:]]))
        if (share, quiet_s) > best[:2]:
            best = share, quiet_s, walked
    walked = best[2]
    if not walked:
        return None
    (_, one), (steps, other) = walked[0], walked[-1]
    places = [gap for _, gap in walked]
    lengths = gaps.ends[places] - gaps.begins[places]
    # Computing varies and what follows doesn't, so starts keep one distance from the end of a gap.
    starts = gaps.ends[places] - float(np.median(lengths)) / 2
    return Iterations(
        starts,
        float(starts[-1] - starts[0]) / steps,
        float(gaps.levels[other] - gaps.levels[one]) / steps,
        bool(np.subtract(*np.quantile(lengths, [0.75, 0.25])) < _EVEN * np.median(lengths)),
    )


def shortest_by_bytes(series: Series, period_s: float) -> Iterations | None:
    """As `iterations_by_bytes`, for a period that may be a multiple of the true one.

    A part of it is taken where that many bytes come between gaps of equal length: bursts within an
    iteration seldom have these, iterations do.
    """
    for parts in range(_MOST_PARTS, 1, -1):
        if period_s / parts >= 2 * series.width_s / _GAP:
            found = iterations_by_bytes(series, period_s / parts)
            if found is not None and found.even:
                return found
    return iterations_by_bytes(series, period_s)


def _find_gaps(series: Series, least_s: float, chatter: float) -> _Gaps:
    """Gaps of `least_s` seconds or more; bytes up to `chatter` within one don't end it."""
    quiet = np.concatenate([[False], series.bytes == 0, [False]])
    edges = np.flatnonzero(np.diff(quiet.astype(int))).reshape(-1, 2)
    edges = edges[(edges[:, 1] - edges[:, 0]) * series.width_s >= least_s]
    sent = np.concatenate([[0.0], np.cumsum(series.bytes)])
    times = np.arange(sent.size, dtype=np.float64) * series.width_s
    if not edges.size:
        return _Gaps(np.zeros(0), np.zeros(0), np.zeros(0))
    levels = sent[edges[:, 0]]
    apart = np.diff(levels) > chatter
    first, last = np.r_[True, apart], np.r_[apart, True]
    return _Gaps(levels[last], times[edges[first, 0]], times[edges[last, 1]])


def _bytes_per_iteration(gaps: _Gaps, offset: int, likely: float) -> float:
    """The size at whose multiples, from the gap `offset` on, most gaps are found."""
    levels = gaps.levels - gaps.levels[offset]
    count = int(min(_FIRST, max(2.0, levels[-1] / likely)))
    sizes = likely * np.arange(_LOW, _HIGH, _OFF / 2 / count)
    wanted = sizes[:, None] * np.arange(1, count + 1)[None, :]
    after = np.searchsorted(levels, wanted).clip(1, levels.size - 1)
    distance = np.minimum(np.abs(levels[after] - wanted), np.abs(levels[after - 1] - wanted))
    hits = (distance < _OFF * sizes[:, None]).sum(axis=1)
    best = np.flatnonzero(hits == hits.max())
    return float(sizes[best[best.size // 2]])


def _walk(gaps: _Gaps, offset: int, size: float, total: float) -> list[tuple[int, int]]:
    """From gap to gap, one iteration's bytes at a time: numbers of iterations, and the gaps.

    Where none is found an iteration ends without one, and the next is looked for further on.
    """
    walked = [(0, offset)]
    level, number = float(gaps.levels[offset]), 0
    while level + size < total * (1 - 1e-9):
        number += 1
        level += size
        gap = gaps.nearest(level, _OFF * size)
        if gap is not None:
            level = float(gaps.levels[gap])
            walked.append((number, gap))
            size = (level - float(gaps.levels[offset])) / number
    return walked
