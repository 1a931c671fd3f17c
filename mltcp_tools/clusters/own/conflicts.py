# SPDX-License-Identifier: BSD-2-Clause
"""The jobs that slow each other most, the link, and what would avoid it.

The log is simulated as it was; a job's loss is the time for which it sent longer than alone because
a link was full. The worst pairs, and up to GROUP jobs that all slow each other, are conflicts. For
the worst ones three remedies are tried: other servers that were free while the last job ran; shifts
of the others' iterations (Cassini's score); and MLTCP, packet by packet, as the flow model can't
tell its gain from its own error. For packets a burst is shortened to BURST_QUEUES port queues, and
computing and timeouts with it.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import combinations, islice
from typing import Any

import numpy as np

from mltcp_tools.base.units import format_seconds
from mltcp_tools.clusters.engine.library import Iteration
from mltcp_tools.clusters.models import Allocation, iteration_of
from mltcp_tools.clusters.outcome import interval
from mltcp_tools.clusters.own.replay import BASE, by_start, shortened
from mltcp_tools.clusters.policies import policy
from mltcp_tools.clusters.policies.placing import fitting, shape
from mltcp_tools.clusters.rules import treatment
from mltcp_tools.clusters.simulate import ClusterSimulator, Losses
from mltcp_tools.clusters.text import share, two_digits
from mltcp_tools.clusters.time_shifts import FITS, group_plan
from mltcp_tools.clusters.topology import Topology
from mltcp_tools.clusters.workload import ClusterJob, Workload

MOST = 10
"""Conflicts that are shown."""
GROUP = 4
"""Jobs of a conflict, at most."""
BURST_QUEUES = 6
_PACKET_RUNS = 4
_ITERATIONS = 24
_SETTLED = 8
"""Iterations before which MLTCP may not have interleaved the jobs."""
_Packets = tuple[str, float, tuple[int, ...]]
"""An experiment of the packet simulator, its link's RTT in seconds, and the jobs' GPUs."""


@dataclass(frozen=True)
class Conflict:
    """Jobs that slow each other on links that all of them cross, in the order in which they began.

    links: the one on which most is lost first. from_s, until_s: when at least two of them ran, in
    the log's time. lost: GPU hours that each loses to the others; slower: these, as a share of what
    it would have held without. places: servers that were free as long as the last job ran, on which
    it shares no link with the others; empty: none. moved: GPU hours that would save. score:
    Cassini's, 1 if shifts make the jobs fit; None: not known. shifts_s: of all but the first job,
    behind its bursts. mltcp: share of the jobs' iteration time that MLTCP saves by packets,
    negative where it costs, and half of its 95 % interval; None, as shifts, where nothing says the
    iterations.
    """

    links: tuple[str, ...]
    jobs: tuple[str, ...]
    from_s: float
    until_s: float
    lost: tuple[float, ...]
    slower: tuple[float, ...]
    places: tuple[str, ...]
    moved: float
    score: float | None
    shifts_s: tuple[float, ...]
    mltcp: float | None = None
    mltcp_half: float = 0.0

    @property
    def hours(self) -> float:
        """Return the GPU hours that all of them lose."""
        return sum(self.lost)

    @property
    def remedies(self) -> tuple[str, str, str]:
        """Placement, shift and MLTCP in words."""
        placed = "nothing free"
        if self.places:
            servers = ", ".join(self.places)
            placed = f"{self.jobs[-1]} on {servers} (saves {two_digits(self.moved)})"
        if self.mltcp is None:
            return placed, "needs iterations", "needs iterations"
        if self.score is None:
            shift = "no common period"
        elif self.score >= FITS and max(self.shifts_s) < 1e-6:
            shift = f"none needed (score {self.score:.3f})"
        elif self.score >= FITS:
            shifts = ", ".join(format_seconds(each) for each in self.shifts_s)
            shift = f"by {shifts} (score {self.score:.3f})"
        else:
            shift = f"none fits (score {self.score:.3f})"
        shown = share(self.mltcp, self.mltcp_half)
        told = abs(self.mltcp) > self.mltcp_half
        word = "not significant:" if not told else "saves" if self.mltcp > 0 else "costs"
        return placed, shift, f"{word} {shown}"

    def to_json(self) -> dict[str, Any]:
        """As a document."""
        names = ("placement", "shift", "mltcp_says")
        return vars(self) | {"hours": self.hours} | dict(zip(names, self.remedies, strict=True))


def conflicts(workload: Workload, most: int = MOST) -> list[Conflict]:
    """The worst of the workload's conflicts."""
    whole = by_start(workload)
    short = shortened(whole)
    losses = Losses()
    ClusterSimulator(short, policy("replay"), treatment(BASE), losses=losses).run()
    factors = [
        job.iterations / own.iterations for job, own in zip(whole.jobs, short.jobs, strict=True)
    ]
    lost = {
        (link, job, other): lost_s * factors[job] / 3600
        for (link, job, other), lost_s in losses.by_pair.items()
        if whole.jobs[job].placement and whole.jobs[other].placement
    }
    # In the order of the first job's start, as `by_start` has them.
    groups = [sorted(group) for group in islice(_groups(lost), most)]
    found = [_conflict(whole, numbers, lost) for numbers in groups]
    found.sort(key=lambda each: -each[0].hours)
    if "iteration" in workload.assumed:
        # Shifts and gains of periods that nobody gave would be made up.
        return [replace(each, score=None, shifts_s=()) for each, _ in found]
    # The packet simulator lets other threads run; groups of the same models are one experiment.
    experiments = list({experiment for _, experiment in found})
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        saved = dict(zip(experiments, pool.map(_by_packets, experiments), strict=True))
    return [
        replace(each, mltcp=saved[experiment][0], mltcp_half=saved[experiment][1])
        for each, experiment in found
    ]


def _groups(lost: Mapping[tuple[int, int, int], float]) -> Iterator[list[int]]:
    """Up to GROUP jobs that all slow each other, about the worst first."""
    left: dict[frozenset[int], float] = defaultdict(float)
    for (_, *pair), hours in lost.items():
        left[frozenset(pair)] += hours

    def beside(number: int, group: Collection[int]) -> float:
        """The loss of a job and those of a group to each other; 0 unless all of them have one."""
        found = [left.get(frozenset((number, each)), 0.0) for each in group]
        return sum(found) if all(found) else 0.0

    while left:
        group = [*max(left, key=lambda pair: left[pair])]
        near = {number for both in left if not both.isdisjoint(group) for number in both}
        for number in sorted(near - {*group}, key=lambda n: -beside(n, group[:2])):
            if len(group) < GROUP and beside(number, group):
                group.append(number)
        yield group
        for both in combinations(group, 2):
            del left[frozenset(both)]


def _conflict(
    workload: Workload, numbers: Sequence[int], lost: Mapping[tuple[int, int, int], float]
) -> tuple[Conflict, _Packets]:
    """The conflict of jobs, the last one last, and the experiment for MLTCP."""
    topology, jobs = workload.topology, [workload.jobs[number] for number in numbers]
    owns = [
        iteration_of(job.model, topology, dict(job.placement), number)
        for job, number in zip(jobs, numbers, strict=True)
    ]
    by_link, by_job, moved = defaultdict[int, float](float), defaultdict[int, float](float), 0.0
    for (link, own, other), more in lost.items():
        if own in numbers and other in numbers:
            by_link[link] += more
            by_job[own] += more
            moved += more * (numbers[-1] in (own, other))
    worst = max(by_link, key=lambda link: by_link[link])
    names, rates_bps = list(topology.network.links), topology.network.rates_bps[::2]
    # Of links that all of them cross and that are equally full, the first is the full one.
    shared = set.intersection(*({each >> 1 for each in own.crossings} for own in owns))
    equal = {n for n in shared if rates_bps[n] <= rates_bps[worst]}
    equal |= {link for link in by_link if by_link[link] > by_link[worst] / 10}
    score, time_shifts = group_plan(topology, owns) or (None, ())
    ends_s = [job.arrival_s + (job.took_s or 0.0) for job in jobs]
    hours = [by_job[number] for number in numbers]
    held = [job.gpus * (job.took_s or 0.0) / 3600 for job in jobs]
    found = Conflict(
        (names[worst], *(names[link] for link in sorted(equal - {worst}))),
        tuple(job.name for job in jobs),
        workload.origin_s + jobs[1].arrival_s,
        workload.origin_s + max(jobs[1].arrival_s, sorted(ends_s)[-2]),
        tuple(hours),
        tuple(own / max(own, had - own) for own, had in zip(hours, held, strict=True)),
        _apart(workload, numbers[-1], owns[:-1]),
        moved,
        score,
        tuple(
            (each.shift_s - time_shifts[0].shift_s) % time_shifts[0].period_s
            for each in time_shifts[1:]
        ),
    )
    return found, _experiment(topology, worst, jobs, owns)


def _apart(workload: Workload, number: int, others: Sequence[Iteration]) -> tuple[str, ...]:
    """Names of servers that were free, by the log, as long as the job ran, and on which it shares
    no link with the others."""
    topology, job = workload.topology, workload.jobs[number]
    free = topology.gpus_of.copy()
    for other in workload.jobs:
        if (
            other is not job
            and other.arrival_s < job.arrival_s + (job.took_s or 0.0)
            and other.arrival_s + (other.took_s or 0.0) > job.arrival_s
        ):
            for server, gpus in other.placement:
                free[server] -= gpus
    taken = {link >> 1 for other in others for link in other.crossings}
    leaves = topology.leaf_index
    orders = [np.flatnonzero(leaves == leaf) for leaf in range(topology.leaves)]
    for order in (*orders, np.argsort(-free, kind="stable")):
        places: Allocation = fitting(free, order, shape(job, topology))
        own = iteration_of(job.model, topology, places, number)
        if places and taken.isdisjoint(link >> 1 for link in own.crossings):
            return tuple(topology.machines[server].name for server in places)
    return ()


def _experiment(
    topology: Topology, link: int, jobs: Sequence[ClusterJob], owns: Sequence[Iteration]
) -> _Packets:
    """The jobs with the link to themselves, both ways at once as rings send, as an experiment
    of the packet simulator."""
    rate_bps = topology.network.rates_bps[2 * link]
    sent = [own.size * max(own.crossings.get(2 * link + way, 0) for way in (0, 1)) for own in owns]
    held = topology.queue + rate_bps * topology.rtt_s / 8
    factor = max(1.0, max(sent) / (BURST_QUEUES * held))
    alone_s = [
        job.model.compute_s + 8 * size / rate_bps for job, size in zip(jobs, sent, strict=True)
    ]
    described = [
        {
            "name": name,
            "bytes": f"{max(10_000, round(size / factor))}B",
            "compute": f"{max(1e-5, job.model.compute_s / factor):.9f}s",
            "jitter": f"{100 * job.jitter:g}%",
            "flows": job.model.flows,
            "direction": "both",
            "start": "random",
            # So that all are there for about as long.
            "iterations": min(5 * _ITERATIONS, round(_ITERATIONS * max(alone_s) / own_s)),
        }
        for name, job, size, own_s in zip("abcd", jobs, sent, alone_s, strict=False)
    ]
    document = {
        "name": "conflict",
        "link": {"rate": f"{rate_bps:.0f}bit", "queue": f"{topology.queue}B"},
        "jobs": described,
        "variants": {"reno": {"cc": "reno"}, "mltcp": {"cc": "mltcp"}},
        "baseline": "reno",
        "iterations": _ITERATIONS,
        "repetitions": _PACKET_RUNS,
        "seed": 1,
        "sysctls": {"net.ipv4.tcp_rto_min_us": str(max(1000, round(200_000 / factor)))},
    }
    return json.dumps(document), topology.rtt_s, tuple(job.gpus for job in jobs)


def _by_packets(asked: _Packets) -> tuple[float, float]:
    """The share of the jobs' iteration time that MLTCP saves, and half of its 95 % interval."""
    from mltcp_tools.lab.experiments.reading import parse_experiment
    from mltcp_tools.lab.simulator.variants import SimulationSettings, simulate_variant

    text, rtt_s, gpus = asked
    experiment = parse_experiment(text, "conflict")

    def times_s(variant: str, repetition: int) -> list[float]:
        done = simulate_variant(
            experiment, experiment.variant(variant), repetition, SimulationSettings(rtt_s=rtt_s)
        )
        own = [report["iterations"][_SETTLED:] for _, report in done.documents]
        return [float(np.mean([each["end"] - each["start"] for each in job])) for job in own]

    saved = []
    for repetition in range(1, _PACKET_RUNS + 1):
        both = zip(times_s("reno", repetition), times_s("mltcp", repetition), strict=True)
        shares = [1 - mltcp_s / reno_s for reno_s, mltcp_s in both]
        saved.append(float(np.average(shares, weights=gpus)))
    return interval(saved)
