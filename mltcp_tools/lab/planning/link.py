# SPDX-License-Identifier: BSD-2-Clause
"""Jobs on one link: how well they fit, and by how much to shift each."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from mltcp_tools.base.errors import UsageError
from mltcp_tools.lab.planning.circle import Circle, make_circle
from mltcp_tools.lab.planning.directions import THERE, directions
from mltcp_tools.lab.planning.profile import Profile, require_jobs
from mltcp_tools.lab.planning.rotations import Problem
from mltcp_tools.lab.planning.search import ANGLE_DEG, TOLERANCE, Optimum, optimise

SCHEMA = "mltcp-plan-link/1"


@dataclass(frozen=True)
class LinkPlan:
    """A link of `capacity_bps` bit/s in each direction, and when its jobs start.

    unshifted: the score if all start together. optimum: rotations in the order of `profiles`. ways:
    the directions in use (planning/directions.py), in the order of the problem's links.
    """

    capacity_bps: float
    profiles: tuple[Profile, ...]
    circle: Circle
    problem: Problem
    optimum: Optimum
    unshifted: float
    ways: tuple[str, ...] = (THERE,)

    @property
    def score(self) -> float:
        """1: no excess demand at any time; can be negative (Cassini, section 4.2).

        Where both directions are in use: their mean, each counting for its share of the bytes.
        """
        return self.optimum.score

    @property
    def way_scores(self) -> dict[str, float]:
        """Direction in use -> its score."""
        shifts = self.optimum.shifts
        return {way: self.problem.link_score(n, shifts) for n, way in enumerate(self.ways)}

    @property
    def way_loads(self) -> dict[str, float]:
        """Direction in use -> the mean demand of all jobs, as a share of the capacity."""
        return {
            way: sum(
                float(self.problem.demand_on(number, place).mean())
                for place in range(len(self.profiles))
            )
            / self.capacity_bps
            for number, way in enumerate(self.ways)
        }

    @property
    def too_fast(self) -> list[str]:
        """Sentences on phases that the link can't carry even alone."""
        return [each for profile in self.profiles for each in profile.too_fast(self.capacity_bps)]

    @property
    def shifts(self) -> dict[str, float]:
        """Job -> seconds by which each of its iterations starts after the common start."""
        return {
            profile.name: steps * self.circle.step_s
            for profile, steps in zip(self.profiles, self.optimum.shifts, strict=True)
        }

    @property
    def periods(self) -> dict[str, float]:
        """Job -> seconds from one start to the next: its iteration, stretched."""
        return {job: self.circle.perimeter_s / count for job, count in self.circle.repeats.items()}

    def to_json(self) -> dict[str, Any]:
        """The plan as a document (`mltcp-plan-link/1`); times in seconds, rates in bit/s."""
        return {
            "schema": SCHEMA,
            "capacity_bps": self.capacity_bps,
            "score": self.score,
            "bound": self.optimum.bound,
            "proven": self.optimum.proven,
            "unshifted_score": self.unshifted,
            "load": max(self.way_loads.values()),
            "directions": {
                way: {"score": score, "load": self.way_loads[way]}
                for way, score in self.way_scores.items()
            },
            "too_fast": self.too_fast,
            "perimeter_s": self.circle.perimeter_s,
            "steps": self.circle.steps,
            "jobs": {
                profile.name: {
                    "shift_s": self.shifts[profile.name],
                    "period_s": self.periods[profile.name],
                    "profile_period_s": profile.period_s,
                    "stretch": self.circle.stretch[profile.name],
                    "repeats": self.circle.repeats[profile.name],
                    "bytes": profile.bytes,
                    "communication_s": profile.communication_s,
                }
                for profile in self.profiles
            },
        }


def check_options(capacity_bps: float, tolerance: float) -> None:
    """Raise UsageError for values that no plan can be made with."""
    if not (math.isfinite(capacity_bps) and capacity_bps > 0):
        raise UsageError(f"A link's rate must be more than 0 bit/s, not {capacity_bps:g}.")

    if not 0 <= tolerance <= 0.5:
        raise UsageError(f"The tolerance must be 0 to 50 %, not {tolerance:.4g}.")


def score_link(
    profiles: Iterable[Profile],
    capacity_bps: float,
    *,
    tolerance: float = TOLERANCE,
) -> LinkPlan:
    """Return the score of jobs on a link, and the shifts that achieve it.

    tolerance: the largest share by which iterations may be stretched to have a common multiple.
    Raises UsageError for jobs or options that make no plan.
    """
    jobs = require_jobs(profiles)
    check_options(capacity_bps, tolerance)
    circle = make_circle(jobs, ANGLE_DEG, tolerance)
    names = [job.name for job in jobs]
    numbers = {name: number for number, name in enumerate(names)}
    ways = directions(capacity_bps, circle, numbers, dict.fromkeys(names, 1))
    problem = Problem(
        [circle.demand[name] for name in names],
        list(ways.values()),
        [circle.back[name] for name in names],
    )
    optimum = optimise(problem)
    unshifted = problem.score([0] * len(jobs))
    return LinkPlan(capacity_bps, jobs, circle, problem, optimum, unshifted, tuple(ways))
