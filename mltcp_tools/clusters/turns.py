"""Turns for jobs that share links: the planner's shifts (Cassini), for whole clusters at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from mltcp_tools.clusters.engine.library import Phase
from mltcp_tools.clusters.topology import Topology
from mltcp_tools.errors import UsageError
from mltcp_tools.planning.circle import make_circle
from mltcp_tools.planning.optimise import optimise
from mltcp_tools.planning.rotations import Problem, SharedLink
from mltcp_tools.profiling.profile import Phase as Burst
from mltcp_tools.profiling.profile import Profile

ANGLE_DEG = 10.0
TOLERANCE = 0.05
MOST_JOBS = 24
"""Larger groups of jobs that links connect are left without turns: no circle holds them."""
SLACK = 0.05


@dataclass(frozen=True)
class Sharing:
    """A job and the phases of its iterations, with the links they cross."""

    name: str
    phases: tuple[Phase, ...]


@dataclass(frozen=True)
class Turn:
    """A job's turns, seconds: from one to the next, the first one after a common start."""

    turn_s: float
    due_s: float


def score(topology: Topology, jobs: Sequence[Sharing], around: int) -> float:
    """How well job number `around` fits with those it shares links with: 1 is best (Cassini)."""
    shared = _shared(topology, jobs)
    mine = [members for members in shared.values() if around in members]
    if not mine:
        return 1.0
    # Its own links only; what is further away was decided before.
    worst = 1.0
    for members in mine:
        plan = _plan(topology, jobs, tuple(sorted(members)))
        worst = min(worst, plan[0] if plan else 0.0)
    return worst


def plan_turns(topology: Topology, jobs: Sequence[Sharing]) -> dict[str, Turn]:
    """Turns of all jobs that share a link which they can fill; others have none."""
    shared = _shared(topology, jobs)
    turns: dict[str, Turn] = {}
    for group in _groups(shared, len(jobs)):
        if 1 < len(group) <= MOST_JOBS:
            plan = _plan(topology, jobs, tuple(group))
            if plan:
                turns |= plan[1]
    return turns


def _shared(topology: Topology, jobs: Sequence[Sharing]) -> dict[int, set[int]]:
    """Link -> numbers of the jobs that could fill it together."""
    rates = topology.rates_bps
    wanted: dict[int, float] = defaultdict(float)
    members: dict[int, set[int]] = defaultdict(set)
    for number, job in enumerate(jobs):
        seen: dict[int, float] = defaultdict(float)
        for phase in job.phases:
            if phase.crossings:
                lone = min(rates[link] / times for link, times in phase.crossings.items())
                for link, times in phase.crossings.items():
                    seen[link] = max(seen[link], lone * times)
        for link, rate in seen.items():
            wanted[link] += rate
            members[link].add(number)
    return {
        link: numbers
        for link, numbers in members.items()
        if len(numbers) > 1 and wanted[link] > rates[link] * (1 + 1e-9)
    }


def _groups(shared: dict[int, set[int]], count: int) -> list[list[int]]:
    leader = list(range(count))

    def find(number: int) -> int:
        while leader[number] != number:
            leader[number] = leader[leader[number]]
            number = leader[number]
        return number

    for members in shared.values():
        first, *rest = sorted(members)
        for other in rest:
            leader[find(other)] = find(first)
    groups: dict[int, list[int]] = defaultdict(list)
    for number in range(count):
        groups[find(number)].append(number)
    return list(groups.values())


def _plan(
    topology: Topology, jobs: Sequence[Sharing], members: tuple[int, ...]
) -> tuple[float, dict[str, Turn]] | None:
    rates = topology.rates_bps
    described = []
    for number in members:
        phases = tuple(
            (phase.compute_s, phase.size, tuple(sorted(phase.crossings.items())))
            for phase in jobs[number].phases
        )
        described.append(phases)
    links = sorted({link for job in described for _, _, crossed in job for link, _ in crossed})
    found = _plan_of(tuple(described), tuple((link, rates[link]) for link in links))
    if found is None:
        return None
    worst, timed = found
    return worst, {
        jobs[number].name: Turn(turn_s, due_s)
        for number, (turn_s, due_s) in zip(members, timed, strict=True)
    }


_Described = tuple[tuple[float, int, tuple[tuple[int, float], ...]], ...]


@lru_cache(maxsize=4096)
def _plan_of(
    jobs: tuple[_Described, ...], rates: tuple[tuple[int, float], ...]
) -> tuple[float, list[tuple[float, float]]] | None:
    """The least score of a link, and (turn, first due) of each job; None without a circle."""
    rate = dict(rates)
    profiles = [_profile(str(number), job, rate) for number, job in enumerate(jobs)]
    try:
        circle = make_circle(profiles, ANGLE_DEG, TOLERANCE)
    except UsageError:
        return None
    links = []
    for link, capacity in rates:
        crossing = [_most(job, link, rate) for job in jobs]
        on = tuple(number for number, most in enumerate(crossing) if most > 0)
        # A job asks for what its own slowest link allows; on the others that is a part of the rate.
        if len(on) > 1 and sum(crossing) > capacity * (1 + 1e-9):
            links.append(SharedLink(capacity, on, (1,) * len(on)))
    if not links:
        return 1.0, [(0.0, 0.0)] * len(jobs)
    problem = Problem([circle.demand[profile.name] for profile in profiles], links)
    optimum = optimise(problem, 0.0)
    worst = min(problem.link_score(number, optimum.shifts) for number in range(len(links)))
    stretch = 1 + 0.01 + max(0.0, 1 - worst)
    timed = []
    for profile, shift in zip(profiles, optimum.shifts, strict=True):
        period_s = circle.perimeter_s / circle.repeats[profile.name] * stretch
        first_s = profile.phases[0].start_s
        timed.append((period_s, shift * circle.step_s * stretch + first_s))
    return worst, timed


def _most(job: _Described, link: int, rate: dict[int, float]) -> float:
    most = 0.0
    for _, _, crossed in job:
        times = dict(crossed)
        if link in times:
            most = max(most, min(rate[each] / t for each, t in crossed) * times[link])
    return most


def _profile(name: str, job: _Described, rate: dict[int, float]) -> Profile:
    """The job's iteration alone, begun with computing."""
    bursts = []
    at_s = 0.0
    for compute_s, size, crossed in job:
        at_s += compute_s
        if crossed:
            lone = min(rate[link] / times for link, times in crossed)
            took_s = size * 8 / lone
            bursts.append(Burst(at_s, took_s, lone))
            at_s += took_s
    return Profile(name, at_s, tuple(bursts))
