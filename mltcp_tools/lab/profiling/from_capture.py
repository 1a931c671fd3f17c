# SPDX-License-Identifier: BSD-2-Clause
"""Profiles of the jobs in a packet capture."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from mltcp_tools.base.errors import UsageError
from mltcp_tools.lab.profiling.capture import Capture, Series
from mltcp_tools.lab.profiling.gaps import Iterations, iterations_by_bytes, shortest_by_bytes
from mltcp_tools.lab.profiling.period import find_period, rebinned
from mltcp_tools.lab.profiling.profile import Floats, Phase, Profile

Places = npt.NDArray[np.int64]

_MOST_PIECES = 17
# Parts of an iteration in which iterations are compared.
_PARTS = 400
# Of the variance of the mean iteration, what pieces of constant rate may leave unexplained.
_UNEXPLAINED = 0.02
# Below this share of the highest rate it is quiet.
_QUIET = 0.05
# A shorter share of the iteration is the edge of a phase, not one of its own.
_EDGE = 0.01
# Neighbouring pieces whose rates differ by less than this share of the highest are one phase.
_ALIKE = 0.1


def profiles_of_capture(capture: Capture, near_s: float | None = None) -> list[Profile]:
    """One profile per job of the capture.

    near_s: roughly the period, where it isn't found without. Raises UsageError with the job's name
    where one has no period or less than two iterations.
    """
    profiles = []
    for job, series in capture.jobs.items():
        try:
            profiles.append(profile_of_series(job, series, near_s))
        except UsageError as error:
            raise UsageError(f"Job {job}: {error}") from None
    return profiles


def profile_of_series(job: str, series: Series, near_s: float | None = None) -> Profile:
    """The profile of a job whose bytes over time are `series`; see `profiles_of_capture`.

    An iteration begins where the longest quiet stretch does: the job computes, then communicates.
    It is found in both directions together; each then has its own phases.
    """
    both = series.both
    if not both.bytes.any():
        raise UsageError("it sends zero bytes, so there is nothing to plan.")
    period_s = find_period(both, near_s)
    find = shortest_by_bytes if near_s is None else iterations_by_bytes
    found = find(both, period_s)
    if found is None:
        raise UsageError(
            "no period found: the traffic never rests between equal numbers of bytes. Name one"
            " job's own connections with --select, or say roughly how long an iteration takes with"
            " --near."
        )
    if series.back is None:
        ways = [series]
    else:
        ways = [Series(series.width_s, each) for each in (series.bytes, series.back)]
    means = _typical(both, ways, found)
    turn = -_longest_quiet(np.sum(means, axis=0))
    share = found.bytes / float(np.sum(means))
    phases = [_phases(np.roll(mean, turn) * share, found.period_s) for mean in means]
    return Profile(job, found.period_s, *phases)


def _typical(both: Series, ways: Sequence[Series], found: Iterations) -> list[Floats]:
    """Bytes in each of _PARTS parts of an iteration, of each direction.

    The mean over the quarter of iterations whose communication was soonest done, in `both`
    directions: those that others delayed least.
    """
    width_s = found.period_s / _PARTS
    places = np.round(found.starts[:-1] / width_s).astype(int)
    # The quiet before the first one may have begun before the capture.
    places = places[places >= 0]
    sent = np.cumsum(_cut(both, width_s, places), axis=1)
    # The last few bytes may be those of the next iteration, or come after a timeout.
    done = (sent < 0.95 * found.bytes).sum(axis=1)
    quarter = places[np.argsort(done, kind="stable")[: max(2, len(done) // 4)]]
    return [np.asarray(_cut(way, width_s, quarter).mean(axis=0)) for way in ways]


def _cut(series: Series, width_s: float, places: Places) -> Floats:
    """The _PARTS parts from each place on: shape (places, _PARTS)."""
    values = rebinned(series, width_s)
    # One direction may end long before the other.
    beyond = max(0, int(places.max()) - values.size)
    values = np.concatenate([values, np.zeros(beyond + _PARTS)])
    return np.array([values[place : place + _PARTS] for place in places])


def _phases(mean: Floats, period_s: float) -> tuple[Phase, ...]:
    """Phases of constant rate that fit the bytes in the parts of an iteration, and carry all."""
    if not mean.any():
        return ()
    width_s = period_s / mean.size
    edges = _pieces(mean)
    pieces = [(a, b, float(mean[a:b].mean())) for a, b in itertools.pairwise(edges)]
    highest = max(rate for _, _, rate in pieces)
    active: list[tuple[int, int, float]] = []
    for a, b, rate in pieces:
        if rate <= _QUIET * highest:
            continue
        if active and active[-1][1] == a:
            edge = min(b - a, a - active[-1][0]) < _EDGE * mean.size
            if edge or abs(rate - active[-1][2]) < _ALIKE * highest:
                a, _, _ = active.pop()
                rate = float(mean[a:b].mean())
        active.append((a, b, rate))
    share = float(mean.sum()) / sum((b - a) * rate for a, b, rate in active)
    return tuple(
        Phase(a * width_s, (b - a) * width_s, rate * share * 8 / width_s) for a, b, rate in active
    )


def _longest_quiet(mean: Floats) -> int:
    """Return the start of the longest quiet stretch, around the circle; 0 without one."""
    quiet = mean <= _QUIET * float(np.quantile(mean, 0.98))
    if not quiet.any() or quiet.all():
        return 0
    busy = int(np.argmin(quiet))
    around = np.roll(quiet, -busy)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], around.astype(int), [0]])))
    runs = edges.reshape(-1, 2)
    longest = runs[np.argmax(runs[:, 1] - runs[:, 0])]
    return int((longest[0] + busy) % mean.size)


def _pieces(mean: Floats) -> list[int]:
    """Edges of the fewest pieces of constant rate that leave little of the variance unexplained.

    Segmented least squares by dynamic programming: the best pieces of each number, until they do.
    """
    size = mean.size
    total = np.concatenate([[0.0], np.cumsum(mean)])
    squares = np.concatenate([[0.0], np.cumsum(mean**2)])
    index = np.arange(size + 1)
    length = np.maximum(1, index[None, :] - index[:, None])
    # cost[a, b]: squared error of one piece from a to b
    cost = (squares[None, :] - squares[:, None]) - (total[None, :] - total[:, None]) ** 2 / length
    cost[index[:, None] >= index[None, :]] = np.inf
    enough = _UNEXPLAINED * float(((mean - mean.mean()) ** 2).sum())
    best = cost[0].copy()
    choices: list[np.ndarray[tuple[int], np.dtype[np.int64]]] = []
    while best[size] > enough and len(choices) + 1 < _MOST_PIECES:
        candidates = best[:, None] + cost
        choices.append(candidates.argmin(axis=0))
        best = candidates.min(axis=0)
    edges = [size]
    for choice in reversed(choices):
        edges.append(int(choice[edges[-1]]))
    return [0, *reversed(edges)]
