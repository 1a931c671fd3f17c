# SPDX-License-Identifier: BSD-2-Clause
"""The best rotations, by whatever finds them soonest, and how good they can be at most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mltcp_tools.lab.planning.milp import solve
from mltcp_tools.lab.planning.rotations import EQUAL, Problem, turned
from mltcp_tools.lab.planning.search import are_few, centre, descend, try_all

ANGLE_DEG = 5.0
TOLERANCE = 0.01


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


def time_limit(jobs: int) -> float:
    """Seconds for the solver unless told otherwise: 0.6 for 8 jobs, 10 for 32, never above 20."""
    return min(20.0, 0.01 * jobs**2)


def optimise(
    problem: Problem,
    time_limit_s: float | None = None,
    starts: Sequence[Sequence[int]] = (),
) -> Optimum:
    """The best rotations of a problem whose jobs are connected.

    All are tried where they are few. Else those of a quick descent are taken if they reach the
    bound; if they don't, a solver goes on from there for `time_limit_s` seconds at most (0: not at
    all).
    """
    if are_few(problem):
        shifts = try_all(problem)
        bound = problem.score(shifts)
    else:
        shifts, bound = descend(problem, starts), problem.bound()
        if problem.score(shifts) < bound - EQUAL:
            limit_s = time_limit(len(shifts)) if time_limit_s is None else time_limit_s
            if limit_s > 0:
                shifts, bound = solve(problem, shifts, limit_s)
    shifts = turned(problem, centre(problem, shifts))
    score = problem.score(shifts)
    return Optimum(shifts, score, max(score, bound))
