# SPDX-License-Identifier: BSD-2-Clause
"""The best rotations where they are few, else good ones, and how good they can be at most."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mltcp_tools.lab.planning.rotations import EQUAL, Problem, turned

ANGLE_DEG = 5.0
TOLERANCE = 0.01

# A twentieth of a second: three jobs at 5 degrees, pairs at much less.
FEW = 2_000_000
# Starts at random, and the numbers to add up in all of them.
_RESTARTS = 32
_WORK = 3_000_000
_PASSES = 30


@dataclass(frozen=True)
class Optimum:
    """Rotations in steps, their score, and a score that no rotations exceed."""

    shifts: tuple[int, ...]
    score: float
    bound: float

    @property
    def proven(self) -> bool:
        """Return whether there is nothing better."""
        return self.score >= self.bound - 1e-6


def optimise(problem: Problem, starts: Sequence[Sequence[int]] = ()) -> Optimum:
    """The best rotations of a problem whose jobs are connected, where all can be tried in a
    fraction of a second; else those of a descent, which also begins at `starts`.
    """
    if math.prod(problem.ranges) * sum(problem.steps) <= FEW:
        shifts = try_all(problem)
        bound = problem.score(shifts)
    else:
        shifts, bound = descend(problem, starts), problem.bound()
    shifts = turned(problem, centre(problem, shifts))
    score = problem.score(shifts)
    return Optimum(shifts, score, max(score, bound))


def try_all(problem: Problem) -> tuple[int, ...]:
    """The best rotations of all: those of the first jobs one by one, the last job's at once."""
    *first, last = problem.ranges
    job = len(first)
    others = [n for n in range(len(problem.links)) if n not in problem.links_of[job]]
    best, best_score = (0,) * len(problem.ranges), -math.inf
    for shifts in itertools.product(*(range(count) for count in first)):
        scores = problem.scores_of(job, (*shifts, 0), last)
        scores += sum(problem.weights[n] * problem.link_score(n, shifts) for n in others)
        number = int(scores.argmax())
        if scores[number] > best_score + EQUAL:
            best, best_score = (*shifts, number), float(scores[number])
    return best


def descend(problem: Problem, starts: Sequence[Sequence[int]] = ()) -> tuple[int, ...]:
    """Good rotations: each job in turn goes where it fits best, until none can improve.

    Begins at `starts` and then at random (with a fixed seed), until the bound is reached or the
    work is no longer small.
    """
    generator = np.random.default_rng(1)
    bound = problem.bound()
    best: tuple[int, ...] = (0,) * len(problem.periods)
    best_score = problem.score(best)
    pass_work = sum(
        problem.periods[job] * steps
        for link, steps in zip(problem.links, problem.steps, strict=True)
        for job in link.jobs
    )
    for number in range(len(starts) + min(_RESTARTS, 1 + _WORK // pass_work)):
        if best_score >= bound - EQUAL:
            break
        if number < len(starts):
            shifts = list(starts[number])
        else:
            shifts = [int(generator.integers(period)) for period in problem.periods]
        _improve(problem, shifts)
        score = problem.score(shifts)
        if score > best_score:
            best, best_score = tuple(shifts), score
    return best


def _improve(problem: Problem, shifts: list[int]) -> None:
    """Move single jobs to better places until there is none."""
    moved = True
    while moved:
        moved = False
        for job, period in enumerate(problem.periods):
            scores = problem.scores_of(job, shifts, period)
            if scores.max() > scores[shifts[job]] + EQUAL:
                shifts[job] = int(scores.argmax())
                moved = True


def centre(problem: Problem, shifts: Sequence[int]) -> tuple[int, ...]:
    """Equally good rotations with room around the jobs.

    Of rotations that score alike, those that leave a job no room to be late are as good as any
    on paper only. Each job in turn goes to the middle of the places around it that score no worse.
    """
    moved = list(shifts)
    for _ in range(_PASSES):
        largest = 0
        for job, period in enumerate(problem.periods):
            scores = problem.scores_of(job, moved, period)
            step = _middle(scores >= scores[moved[job]] - EQUAL, moved[job])
            moved[job] = (moved[job] + step) % period
            largest = max(largest, abs(step))
        if largest <= 1:
            break
    return tuple(moved)


def _middle(good: np.ndarray[tuple[int], np.dtype[np.bool_]], at: int) -> int:
    """Return the distance from `at` to the middle of the run of good places around it; 0 if all are
    good.
    """
    if good.all():
        return 0
    around = np.roll(good, -at)
    ahead = int(np.argmin(around)) - 1
    behind = int(np.argmin(around[::-1]))
    return (ahead - behind) // 2
