"""Profiles of the jobs in a packet capture."""

from __future__ import annotations

import itertools

import numpy as np

from mltcp_tools.errors import UsageError
from mltcp_tools.profiling.capture import Capture, Series
from mltcp_tools.profiling.gaps import Iterations, iterations_by_bytes, shortest_by_bytes
from mltcp_tools.profiling.period import (
    PARTS,
    confirm_in_spectrum,
    find_period,
    iterations_by_likeness,
    rebinned,
)
from mltcp_tools.profiling.profile import Floats, Phase, Profile

_MOST_PIECES = 17
# Of the variance of the mean iteration, what pieces of constant rate may leave unexplained.
_UNEXPLAINED = 0.02
# Below this share of the highest rate it is quiet.
_QUIET = 0.05
# A shorter share of the iteration is the edge of a phase, not one of its own.
_EDGE = 0.01


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
    """
    if not series.bytes.any():
        raise UsageError("it sends zero bytes, so there is nothing to plan.")
    period_s = find_period(series, near_s)
    find = shortest_by_bytes if near_s is None else iterations_by_bytes
    found = find(series, period_s)
    if found is None:
        confirm_in_spectrum(series, period_s)
        found = iterations_by_likeness(series, period_s)
    return Profile(job, found.period_s, _phases(_typical(series, found), found))


def _typical(series: Series, found: Iterations) -> Floats:
    """Bytes in each of PARTS parts of an iteration: the mean over those that others delayed least.

    These are the quarter whose communication was soonest done.
    """
    width_s = found.period_s / PARTS
    values = np.concatenate([rebinned(series, width_s), np.zeros(PARTS)])
    places = np.round(found.starts[:-1] / width_s).astype(int)
    # The quiet before the first one may have begun before the capture.
    iterations = np.array([values[place : place + PARTS] for place in places[places >= 0]])
    sent = np.cumsum(iterations, axis=1)
    # The last few bytes may be those of the next iteration, or come after a time-out.
    done = (sent < 0.95 * found.bytes).sum(axis=1)
    quarter = np.argsort(done, kind="stable")[: max(2, len(done) // 4)]
    return np.asarray(iterations[quarter].mean(axis=0))


def _phases(mean: Floats, found: Iterations) -> tuple[Phase, ...]:
    """Phases of constant rate that fit a typical iteration, and carry all bytes of one."""
    mean = np.roll(mean, -_longest_quiet(mean))
    width_s = found.period_s / mean.size
    edges = _pieces(mean)
    pieces = [(a, b, float(mean[a:b].mean())) for a, b in itertools.pairwise(edges)]
    highest = max(rate for _, _, rate in pieces)
    active: list[tuple[int, int, float]] = []
    for a, b, rate in pieces:
        if rate <= _QUIET * highest:
            continue
        if active and active[-1][1] == a and min(b - a, a - active[-1][0]) < _EDGE * mean.size:
            a, _, _ = active.pop()
            rate = float(mean[a:b].mean())
        active.append((a, b, rate))
    share = found.bytes / sum((b - a) * rate for a, b, rate in active)
    return tuple(
        Phase(a * width_s, (b - a) * width_s, rate * share * 8 / width_s) for a, b, rate in active
    )


def _longest_quiet(mean: Floats) -> int:
    """Where the longest quiet stretch begins, around the circle; 0 without one."""
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
