# SPDX-License-Identifier: BSD-2-Clause
"""The period of a job's traffic, and where each of its iterations lies.

The period is where the autocorrelation is highest. Jitter and other jobs make iterations longer and
shorter, so each is then found by itself, by its bytes (`gaps`); their mean distance is the period.
Where traffic never rests, the period is confirmed in the spectrum, and iterations are found by
their likeness to those before.
"""

from __future__ import annotations

import numpy as np

from mltcp_tools.base.errors import UsageError
from mltcp_tools.lab.profiling.capture import Series
from mltcp_tools.lab.profiling.gaps import Iterations
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
_LEAST_POWER = 0.28
# Parts of an iteration in which iterations are compared.
PARTS = 400


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


def confirm_in_spectrum(series: Series, period_s: float) -> None:
    """Raise UsageError where the spectrum has no line at a period."""
    values, width_s = _averaged(series, min(period_s, LEAST_PERIOD_S) / _BINS)
    if _power_at(values, round(period_s / width_s)) < _LEAST_POWER:
        raise UsageError(
            f"no period found: the traffic resembles itself after {period_s * 1e3:.4g} ms, but its"
            " spectrum has no line there. Capture for longer, or say how long an iteration takes"
            " with --near."
        )


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


def _power_at(values: Floats, lag: int) -> float:
    """The share of the power around a frequency that is within a tenth of it.

    Around: between a half and one and a half times the frequency. Evenly spread power has 0.2.
    """
    power = np.abs(np.fft.rfft((values - values.mean()) * np.hanning(values.size))) ** 2
    multiple = np.arange(power.size) * lag / values.size
    around = power[(multiple > 0.5) & (multiple < 1.5)]
    # Two bins to either side are the width of a line under this window.
    at = power[np.abs(multiple - 1) <= max(0.1, 2 * lag / values.size)]
    return float(at.sum() / around.sum()) if around.sum() > 0 else 0.0


def iterations_by_likeness(series: Series, period_s: float) -> Iterations:
    """The iterations of traffic without quiet gaps, each found by its likeness to those before.

    They begin in the quietest moment. Raises UsageError where there is only one.
    """
    width_s = period_s / PARTS
    values = rebinned(series, width_s)
    # The last burst is whole only with the quiet after it, which a capture seldom has.
    values = np.concatenate([values[: _last(values) + 1], np.zeros(PARTS // 2)])
    begin = _quietest(values[: 2 * PARTS])
    starts = [begin]
    template = values[begin : begin + PARTS].copy()
    while True:
        likely = starts[-1] + PARTS
        found = _most_alike(values, template, likely - int(0.4 * PARTS), likely + int(0.4 * PARTS))
        if found is None:
            break
        place, likeness = found
        if likeness < 0.5 and place + PARTS > values.size - PARTS // 2:
            break
        if likeness < 0.5:
            # A straggler, if what comes next is later and all between is one iteration's. Else
            # a collision has stretched it, and it stays where it is most alike.
            late = _most_alike(values, template, likely, likely + PARTS)
            if late is not None and late[1] > likeness:
                between = float(values[starts[-1] : late[0]].sum())
                if between < 1.5 * float(template.sum()):
                    place, likeness = late
        starts.append(place)
        if likeness > 0.5:
            template += 0.2 * (values[place : place + PARTS] - template)
    # Each start was found by the whole iteration after it, so the last one's end isn't known.
    if len(starts) < 3:
        raise UsageError("one iteration only is complete; a period takes two or more.")
    first, last = starts[0], starts[-1]
    return Iterations(
        np.array(starts) * width_s,
        (last - first) * width_s / (len(starts) - 1),
        float(values[first:last].sum()) / (len(starts) - 1),
    )


def _quietest(values: Floats) -> int:
    """The middle of the quietest stretch among the places where an iteration may begin."""
    span = PARTS // 8
    around = np.convolve(values, np.ones(span), "valid")[:PARTS]
    quiet = around <= around.min() + 1e-9 * max(1.0, float(around.max()))
    edges = np.flatnonzero(np.diff(np.concatenate([[0], quiet.astype(int), [0]])))
    runs = edges.reshape(-1, 2)
    first, last = runs[np.argmax(runs[:, 1] - runs[:, 0])]
    return int((first + last) // 2) + span // 2


def _most_alike(
    values: Floats, template: Floats, first: int, last: int
) -> tuple[int, float] | None:
    """The place from `first` to `last` whose iteration is most like the template, and how much.

    None where the series ends before.
    """
    window = values[first : last + PARTS]
    if window.size < PARTS + (last - first) // 2:
        return None
    shape = template - template.mean()
    matches = np.correlate(window, shape, "valid")
    # Of humps about as high as the highest, the nearest to the middle, at its top.
    highest = float(matches.max())
    good = matches >= highest - 0.1 * abs(highest)
    places = np.flatnonzero(good)
    near = int(places[np.argmin(np.abs(places - (last - first) / 2))])
    rest = np.flatnonzero(~good)
    low = int(rest[rest < near].max(initial=-1)) + 1
    high = int(rest[rest > near].min(initial=good.size))
    place = low + int(matches[low:high].argmax())
    norm = float((shape**2).sum())
    return first + place, float(matches[place]) / norm if norm > 0 else 0.0
