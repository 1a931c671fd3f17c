# SPDX-License-Identifier: BSD-2-Clause
"""Time shifts for jobs that share links: the planner's shifts and scores (Cassini)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache

from mltcp_tools.base.errors import UsageError
from mltcp_tools.clusters.engine.library import Iteration
from mltcp_tools.clusters.topology import Topology
from mltcp_tools.lab.emulator.time_shift import TimeShift
from mltcp_tools.lab.planning.affinity import JOB, Members, affinity_graph, components
from mltcp_tools.lab.planning.circle import make_circle
from mltcp_tools.lab.planning.cluster import plan_cluster
from mltcp_tools.lab.planning.network import NetworkLink
from mltcp_tools.lab.planning.profile import Phase, Profile
from mltcp_tools.lab.planning.topology import Cluster, Placement

ANGLE_DEG = 15.0
TOLERANCE = 0.02
FITS = 0.95
"""Least score of the worst link at which a shift fits: slower shifts would cost more than
collisions."""
MOST_JOBS = 8
MOST_STEPS = 1000
"""Groups of more jobs that links connect, or whose circle has more steps, are left without time
shifts: a plan would take longer than the jobs that it is for stay together."""
ROOM = 0.03
"""Share by which time shifts are longer than iterations alone, which absorbs delays: with jitter of
3 %, a slot that is missed costs more than longer ones."""


def group_plan(
    topology: Topology, jobs: Sequence[Iteration]
) -> tuple[float, tuple[TimeShift, ...]] | None:
    """The score of jobs on the links that they share, and the slots of each job's first burst; None
    without a plan."""
    if len(jobs) > MOST_JOBS:
        return None
    rates = topology.rates_bps
    profiles = tuple(_profile(str(n), own, rates) for n, own in enumerate(jobs))
    crossed = tuple(
        (link, rates[int(link)], tuple(on.items())) for link, on in _shared(topology, jobs).items()
    )
    return _plan(profiles, crossed)


def score_last(topology: Topology, jobs: Sequence[Iteration]) -> float:
    """The least score of the links that the last job shares with the others: 1 is best (Cassini).

    0 where these have no plan.
    """
    last, worst = str(len(jobs) - 1), 1.0
    for on in _shared(topology, jobs).values():
        if last in on:
            plan = group_plan(topology, [jobs[int(name)] for name in on])
            worst = min(worst, plan[0] if plan else 0.0)
    return worst


def plan_time_shifts(topology: Topology, jobs: Sequence[Iteration]) -> dict[int, TimeShift]:
    """Time shifts of the jobs, by their places, that share a link and fit there."""
    shared, found = _shared(topology, jobs), dict[int, TimeShift]()
    for part in components(affinity_graph(shared, list(shared))):
        places = sorted(int(name) for kind, name in part if kind == JOB)
        plan = group_plan(topology, [jobs[place] for place in places])
        if plan and plan[0] >= FITS:
            found.update(zip(places, plan[1], strict=True))
    return found


def _shared(topology: Topology, jobs: Sequence[Iteration]) -> Members:
    """The links that jobs could fill together."""
    rates = topology.rates_bps
    wanted: dict[int, float] = defaultdict(float)
    members: dict[int, dict[str, int]] = defaultdict(dict)
    for number, own in enumerate(jobs):
        for link, times in own.crossings.items():
            wanted[link] += _lone_bps(own, rates) * times
            members[link][str(number)] = round(times)
    return {
        str(link): on
        for link, on in members.items()
        if len(on) > 1 and wanted[link] > rates[link] * (1 + 1e-9)
    }


def _lone_bps(own: Iteration, rates: Sequence[float]) -> float:
    return min(rates[link] / times for link, times in own.crossings.items())


@lru_cache(maxsize=4096)
def _plan(
    profiles: tuple[Profile, ...],
    crossed: tuple[tuple[str, float, tuple[tuple[str, int], ...]], ...],
) -> tuple[float, tuple[TimeShift, ...]] | None:
    """Of jobs and (link, its rate in bit/s, crossings by job): what `group_plan` gives."""
    placement: dict[str, dict[str, int]] = {profile.name: {} for profile in profiles}
    for link, _, on in crossed:
        for job, times in on:
            placement[job][link] = times
    links = {link: NetworkLink(link, rate_bps, None) for link, rate_bps, _ in crossed}
    cluster = Cluster(links, {p.name: p for p in profiles}, (Placement("", placement),))
    try:
        if make_circle(profiles, ANGLE_DEG, TOLERANCE).steps > MOST_STEPS:
            return None
        (plan,) = plan_cluster(cluster, angle_deg=ANGLE_DEG, tolerance=TOLERANCE)
    except UsageError:
        return None
    stretch = 1 + ROOM + max(0.0, 1 - plan.worst)
    time_shifts = []
    for each in profiles:
        period_s = plan.periods[each.name] * stretch
        begins_s = plan.shifts[each.name] * stretch + each.phases[0].start_s
        time_shifts.append(TimeShift(period_s, begins_s % period_s))
    return plan.worst, tuple(time_shifts)


def _profile(name: str, own: Iteration, rates: Sequence[float]) -> Profile:
    """The job's iteration alone, begun with computing."""
    if not own.crossings:
        return Profile(name, own.compute_s, ())
    isolated_bps = _lone_bps(own, rates)
    sending_s = own.size * 8 / isolated_bps
    burst = Phase(own.compute_s, sending_s, isolated_bps)
    return Profile(name, own.compute_s + sending_s, (burst,))
