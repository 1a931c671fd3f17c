# SPDX-License-Identifier: BSD-2-Clause
"""The period of a job's traffic: where its autocorrelation is highest.

Jitter and other jobs make iterations longer and shorter, so each is then found by itself, by its
bytes (`gaps`); their mean distance is the period.
"""

from __future__ import annotations

import numpy as np

from mltcp_tools.base.errors import UsageError
from mltcp_tools.lab.profiling.capture import Series
from mltcp_tools.lab.profiling.profile import Floats

# Packets, and windows of them, repeat faster than this.
LEAST_PERIOD_S = 0.02
# Bins per shortest period, and over how many of them traffic is averaged.
_BINS = 20
_AVERAGED = 5
# A job that is quiet for 3 % of an iteration has a standard deviation of 0.17 of its mean rate.
_LEAST_DEVIATION = 0.1
_MOST_BINS = 1 << 18
# Bursts at random reach 0.3 where the lag is half the length of the series, and less where it fits
# in more often. Jitter of 10 % leaves 0.7, and other jobs in the way 0.35.
_LEAST_LIKENESS = 0.25
_LEAST_LIKENESS_ONCE = 0.7
# Of two lags almost as good the shorter one is the period, the longer one a multiple.
_AS_GOOD = 0.85


def find_period(series: Series, near_s: float | None = None) -> float:
    """The period in seconds, as the autocorrelation shows it.

    near_s: look within a fifth of this only. Raises UsageError where there is no period, or the
    series has less than two.
    """
    least_s = LEAST_PERIOD_S if near_s is None else near_s * 0.8
    values, width_s = _averaged(series, least_s / _BINS)
    size = values.size
    least = max(2, round(least_s / width_s))
    most = size // 2 if near_s is None else min(size // 2, round(near_s * 1.2 / width_s))
    if least >= most:
        raise UsageError(
            f"{size * width_s:.4g} s of traffic have less than two iterations; capture for longer."
        )
    if values.std() < _LEAST_DEVIATION * values.mean():
        raise UsageError(
            "no period found: the traffic is even, or one iteration only. Capture ten iterations or"
            " more."
        )
    likeness = _autocorrelation(values)
    # The burst resembles itself at short lags; what counts begins where that has ended.
    below = np.flatnonzero(likeness[:most] < 0)
    first = max(least, int(below[0]) if below.size else most)
    found = likeness[first : most + 1]
    enough = _LEAST_LIKENESS + _LEAST_LIKENESS_ONCE * np.arange(first, most + 1) / size
    found = np.where(found >= enough, found, 0.0)
    if found.size == 0 or found.max() == 0:
        raise UsageError(
            "no period found: the traffic doesn't repeat. Capture ten iterations or more, or say"
            " roughly how long one takes with --near."
        )
    # The first hump that is almost as high as the highest, at its top.
    start = first + int(np.argmax(found >= _AS_GOOD * found.max()))
    ends = np.flatnonzero(likeness[start : most + 1] < _AS_GOOD * found.max())
    end = start + int(ends[0]) if ends.size else most + 1
    lag = start + int(likeness[start:end].argmax())
    return lag * width_s


def _averaged(series: Series, width_s: float) -> tuple[Floats, float]:
    """The series in bins of about this width, averaged over a few, and the width."""
    length_s = series.width_s * series.bytes.size
    width_s = max(series.width_s, width_s, length_s / _MOST_BINS)
    values = rebinned(series, width_s)
    values = values[: _last(values) + 1]
    if values.size > _AVERAGED:
        values = np.convolve(values, np.full(_AVERAGED, 1 / _AVERAGED), "valid")
    return values, width_s


def rebinned(series: Series, width_s: float) -> Floats:
    """The series in bins of `width_s` seconds; none of its bytes are lost but those at the end."""
    edges = np.arange(0.0, series.bytes.size * series.width_s + width_s * 1e-6, width_s)
    sent = np.concatenate([[0.0], np.cumsum(series.bytes)])
    times = np.arange(sent.size) * series.width_s
    return np.asarray(np.diff(np.interp(edges, times, sent)))


def _last(values: Floats) -> int:
    return int(np.flatnonzero(values)[-1]) if values.any() else -1


def _autocorrelation(values: Floats) -> Floats:
    """Of lags 0 to half the length; 1 at lag 0."""
    size = values.size
    spectrum = np.fft.rfft(values - values.mean(), 2 * size)
    sums = np.fft.irfft(np.abs(spectrum) ** 2)[: size // 2 + 1]
    return np.asarray(sums / (size - np.arange(sums.size)) * (size / sums[0]))
