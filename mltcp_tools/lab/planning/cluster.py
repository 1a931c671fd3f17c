# SPDX-License-Identifier: BSD-2-Clause
"""Plans for whole clusters: every candidate placement scored, the shifts of its jobs, a ranking."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import networkx as nx

from mltcp_tools.lab.planning.affinity import (
    JOB,
    LINK,
    Members,
    affinity_graph,
    components,
    deciding_links,
    shared_links,
    traverse,
)
from mltcp_tools.lab.planning.circle import Circle, make_circle
from mltcp_tools.lab.planning.directions import directions
from mltcp_tools.lab.planning.link import LinkPlan, check_options
from mltcp_tools.lab.planning.rotations import Problem
from mltcp_tools.lab.planning.search import ANGLE_DEG, TOLERANCE, Optimum, optimise
from mltcp_tools.lab.planning.topology import Cluster, Placement

SCHEMA = "mltcp-plan-cluster/1"


@dataclass(frozen=True)
class PlacementPlan:
    """A placement and when its jobs start.

    links: every shared link with the shifts that were chosen. shifts, periods: job -> seconds, as
    in LinkPlan; jobs that share no link aren't shifted. bound: a mean score that no shifts exceed.
    """

    name: str
    links: Mapping[str, LinkPlan] = field(default_factory=dict)
    shifts: Mapping[str, float] = field(default_factory=dict)
    periods: Mapping[str, float] = field(default_factory=dict)
    bound: float = 1.0

    @property
    def score(self) -> float:
        """Mean over the shared links; 1 without any."""
        scores = [link.score for link in self.links.values()]
        return sum(scores) / len(scores) if scores else 1.0

    @property
    def worst(self) -> float:
        """The lowest score of a link."""
        return min((link.score for link in self.links.values()), default=1.0)

    def to_json(self) -> dict[str, Any]:
        """The placement's part of the plan's document."""
        return {
            "name": self.name,
            "score": self.score,
            "worst_score": self.worst,
            "bound": self.bound,
            "jobs": {
                job: {"shift_s": shift_s, "period_s": self.periods[job]}
                for job, shift_s in self.shifts.items()
            },
            "links": {
                name: {
                    "score": link.score,
                    "unshifted_score": link.unshifted,
                    "directions": link.way_scores,
                    "too_fast": link.too_fast,
                    "jobs": [profile.name for profile in link.profiles],
                }
                for name, link in self.links.items()
            },
        }


def to_json(plans: list[PlacementPlan]) -> dict[str, Any]:
    """Ranked placements as a document (`mltcp-plan-cluster/1`); times in seconds."""
    return {"schema": SCHEMA, "placements": [plan.to_json() for plan in plans]}


def plan_cluster(
    cluster: Cluster,
    *,
    angle_deg: float = ANGLE_DEG,
    tolerance: float = TOLERANCE,
) -> list[PlacementPlan]:
    """The placements, best mean score first.

    Where the affinity graph has a loop, the shifts of its links may contradict each other; the
    paper discards such placements, and here the jobs and links of the loop are solved jointly.
    angle_deg: the precision of rotations, in degrees of a job's circle. tolerance: as of
    `score_link`.
    """
    check_options(1.0, tolerance)
    planner = _Planner(cluster, angle_deg, tolerance)
    plans = [planner.plan(placement) for placement in cluster.placements]
    return sorted(plans, key=lambda plan: (-plan.score, -plan.worst))


class _Planner:
    """Plans placement after placement; equal links are solved once."""

    def __init__(self, cluster: Cluster, angle_deg: float, tolerance: float) -> None:
        self._cluster = cluster
        self._angle_deg = angle_deg
        self._tolerance = tolerance
        self._known: dict[tuple[object, ...], Optimum] = {}

    def plan(self, placement: Placement) -> PlacementPlan:
        members = shared_links(self._cluster, placement)
        graph = affinity_graph(members, deciding_links(self._cluster, members))
        profiles = self._cluster.profiles
        shifts = dict.fromkeys(placement.crossings, 0.0)
        periods = {job: profiles[job].period_s for job in placement.crossings}
        shifted: dict[str, tuple[Circle, dict[str, int]]] = {}
        bounds: dict[str, float] = {}
        for part in components(graph):
            circle, steps = self._plan_part(part, members, placement.rings, bounds)
            for job, shift in steps.items():
                shifts[job] = shift * circle.step_s
                periods[job] = circle.perimeter_s / circle.repeats[job]
                shifted[job] = circle, steps
        links = {
            link: self._finished(link, jobs, placement.rings, *shifted[next(iter(jobs))])
            for link, jobs in members.items()
        }
        best = [bounds.get(link, plan.optimum.bound) for link, plan in links.items()]
        bound = sum(best) / len(best) if best else 1.0
        return PlacementPlan(placement.name, links, shifts, periods, bound)

    def _plan_part(
        self,
        part: nx.Graph,
        members: Members,
        rings: Collection[str],
        bounds: dict[str, float],
    ) -> tuple[Circle, dict[str, int]]:
        """The circle of a connected part's jobs, and their shifts in steps.

        Where a loop lowers what its links can reach on average, that is noted in `bounds`.
        """
        profiles = self._cluster.profiles
        jobs = [job for job in profiles if (JOB, job) in part]
        links = [link for link in members if (LINK, link) in part]
        circle = make_circle([profiles[job] for job in jobs], self._angle_deg, self._tolerance)
        weights, alone = {}, 0.0
        for link in links:
            own = list(members[link])
            optimum = self._optimise(self._problem(circle, own, {link: members[link]}, rings))
            weights[link] = dict(zip(own, optimum.shifts, strict=True))
            alone += optimum.bound / len(links)
        steps = traverse(part, weights, {job: circle.period_steps(job) for job in jobs})
        if not nx.is_forest(part):
            on = {link: members[link] for link in links}
            problem = self._problem(circle, jobs, on, rings)
            start = [steps[job] for job in jobs]
            optimum = self._optimise(problem, start)
            steps = dict(zip(jobs, optimum.shifts, strict=True))
            if optimum.bound < alone:
                bounds.update(dict.fromkeys(links, optimum.bound))
        return circle, steps

    def _problem(
        self, circle: Circle, jobs: list[str], links: Members, rings: Collection[str]
    ) -> Problem:
        numbers = {job: place for place, job in enumerate(jobs)}
        return Problem(
            [circle.demand[job] for job in jobs],
            [
                way
                for link, on in links.items()
                for way in directions(
                    self._cluster.links[link].rate_bps, circle, numbers, on, rings
                ).values()
            ],
            [circle.back[job] for job in jobs],
        )

    def _optimise(self, problem: Problem, *starts: list[int]) -> Optimum:
        """The problem's optimum, computed once."""
        demands = (*problem.demand, *problem.back)
        key = (tuple(problem.links), tuple(each.tobytes() for each in demands))
        if key not in self._known:
            self._known[key] = optimise(problem, starts)
        return self._known[key]

    def _finished(
        self,
        link: str,
        jobs: Mapping[str, int],
        rings: Collection[str],
        circle: Circle,
        steps: Mapping[str, int],
    ) -> LinkPlan:
        """The link's plan with the shifts that its jobs got in the end."""
        own = list(jobs)
        problem = self._problem(circle, own, {link: dict(jobs)}, rings)
        rate_bps = self._cluster.links[link].rate_bps
        numbers = {job: place for place, job in enumerate(own)}
        shifts = tuple(steps[job] for job in own)
        score = problem.score(shifts)
        return LinkPlan(
            rate_bps,
            tuple(self._cluster.profiles[job] for job in own),
            circle.of(own),
            problem,
            Optimum(shifts, score, max(score, self._optimise(problem).bound)),
            problem.score([0] * len(own)),
            tuple(directions(rate_bps, circle, numbers, jobs, rings)),
        )
