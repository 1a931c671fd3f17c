# SPDX-License-Identifier: BSD-2-Clause
"""The jobs that slow each other most, the link, and what would avoid it.

The log is simulated as it was; a job's loss is the time for which it sent longer than alone because
that link was full. The worst pairs, and up to GROUP jobs that all slow each other there, are
conflicts. For the worst ones three remedies are tried: other servers that were free when the last
job began; shifts of the others' iterations (Cassini's score); and MLTCP, packet by packet, as the
flow model can't tell its gain from its own error. For packets a burst is
shortened to BURST_QUEUES port queues, and computing and timeouts with it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from mltcp_tools.base.units import format_seconds
from mltcp_tools.clusters.engine.library import Phase
from mltcp_tools.clusters.intervals import interval
from mltcp_tools.clusters.models import Allocation, phases_of
from mltcp_tools.clusters.own.replay import BASE, by_start, shortened
from mltcp_tools.clusters.policies import policy
from mltcp_tools.clusters.policies.placing import fitting, shape
from mltcp_tools.clusters.rules import treatment
from mltcp_tools.clusters.simulate import ClusterSimulator, Losses
from mltcp_tools.clusters.text import share
from mltcp_tools.clusters.time_shifts import FITS, group_plan
from mltcp_tools.clusters.topology import Topology
from mltcp_tools.clusters.view import Ints
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


@dataclass(frozen=True)
class Conflict:
    """Jobs that slow each other on a link, in the order in which they began.

    from_s, until_s: when at least two of them ran, in the log's time. hours: GPU hours that they
    lose to each other there. places: servers that were free for the last
    job when it began, on which it shares no link with the others; empty: none. score: Cassini's, 1
    if shifts make the jobs fit; None: not known. shifts_s: of all but the first job, behind its
    bursts. mltcp: share of the jobs' iteration time that MLTCP saves by packets, negative where it
    costs, and half of its 95 % interval; None, as shifts, where nothing says the iterations.
    """

    link: str
    jobs: tuple[str, ...]
    from_s: float
    until_s: float
    hours: float
    places: tuple[str, ...]
    score: float | None
    shifts_s: tuple[float, ...]
    mltcp: float | None = None
    mltcp_half: float = 0.0

    @property
    def remedies(self) -> tuple[str, str, str]:
        """Placement, shift and MLTCP in words."""
        placed = f"{self.jobs[-1]} on {', '.join(self.places)}" if self.places else "nothing free"
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
        return vars(self) | dict(zip(names, self.remedies, strict=True))


def conflicts(workload: Workload, most: int = MOST) -> list[Conflict]:
    """The worst of the workload's conflicts."""
    whole = by_start(workload)
    short = shortened(whole)
    losses = Losses()
    outcome = ClusterSimulator(short, policy("replay"), treatment(BASE), losses=losses).run()
    factors = [
        job.iterations / own.iterations for job, own in zip(whole.jobs, short.jobs, strict=True)
    ]
    hours = {
        (link, a, b): lost_s * max(factors[a], factors[b]) / 3600
        for (link, a, b), lost_s in losses.by_pair.items()
        if whole.jobs[a].placement and whole.jobs[b].placement
    }
    begun = {done.name: done.start_s for done in outcome.jobs}
    ended = {done.name: done.end_s for done in outcome.jobs}
    found: list[tuple[Conflict, str]] = []
    for link, group, lost in islice(_groups(hours), most):
        numbers = sorted(group, key=lambda number: begun[short.jobs[number].name])
        start_s = begun[short.jobs[numbers[-1]].name]
        free = whole.topology.gpus_of.copy()
        for number, job in enumerate(whole.jobs):
            if begun[job.name] <= start_s < ended[job.name] and number != numbers[-1]:
                for server, gpus in job.placement:
                    free[server] -= gpus
        found.append(_conflict(whole, link, numbers, lost, free))
    if "iteration" in workload.assumed:
        # Shifts and gains of periods that nobody gave would be made up.
        plain = [replace(each, score=None, shifts_s=()) for each, _ in found]
        return sorted(plain, key=lambda each: -each.hours)
    # The packet simulator lets other threads run; groups of the same models are one experiment.
    experiments = list({experiment for _, experiment in found})
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        saved = dict(zip(experiments, pool.map(_by_packets, experiments), strict=True))
    tried = [
        replace(each, mltcp=saved[experiment][0], mltcp_half=saved[experiment][1])
        for each, experiment in found
    ]
    return sorted(tried, key=lambda each: -each.hours)


def _groups(hours: Mapping[tuple[int, int, int], float]) -> Iterator[tuple[int, list[int], float]]:
    """Links, up to GROUP jobs that all slow each other there, and their loss; about the worst
    first."""
    left = dict(hours)
    while left:
        link, *group = max(left, key=lambda key: left[key])
        others = {number for where, *pair in left if where == link for number in pair}
        for number in sorted(others - {*group}, key=lambda n: -_with(left, link, group, n)):
            if len(group) < GROUP and _with(left, link, group, number):
                group.append(number)
        own = [key for key in left if key[0] == link and {*key[1:]} <= {*group}]
        yield link, group, sum(left.pop(key) for key in own)


def _with(
    hours: Mapping[tuple[int, int, int], float], link: int, group: Sequence[int], number: int
) -> float:
    """The loss of a job and those of a group to each other; 0 unless all of them have one."""
    found = [hours.get((link, min(number, each), max(number, each)), 0.0) for each in group]
    return sum(found) if all(found) else 0.0


def _conflict(
    workload: Workload, link: int, numbers: Sequence[int], hours: float, free: Ints
) -> tuple[Conflict, str]:
    """The conflict of jobs, the last one last, and the experiment for MLTCP."""
    topology, jobs = workload.topology, [workload.jobs[number] for number in numbers]
    phases = [
        phases_of(job.model, topology, dict(job.placement), number)
        for job, number in zip(jobs, numbers, strict=True)
    ]
    score, time_shifts = group_plan(topology, phases) or (None, ())
    others = [phase for own in phases[:-1] for phase in own]
    ends_s = [job.arrival_s + (job.took_s or 0.0) for job in jobs]
    found = Conflict(
        list(topology.network.links)[link],
        tuple(job.name for job in jobs),
        workload.origin_s + sorted(job.arrival_s for job in jobs)[1],
        workload.origin_s + sorted(ends_s)[-2],
        hours,
        _apart(topology, jobs[-1], numbers[-1], others, free),
        score,
        tuple(
            (each.shift_s - time_shifts[0].shift_s) % time_shifts[0].period_s
            for each in time_shifts[1:]
        ),
    )
    return found, _experiment(topology, link, jobs, phases)


def _apart(
    topology: Topology, job: ClusterJob, number: int, others: Sequence[Phase], free: Ints
) -> tuple[str, ...]:
    """Names of free servers on which the job shares no link with the others' phases."""
    taken = {link >> 1 for phase in others for link in phase.crossings}
    leaves = topology.leaf_index
    orders = [np.flatnonzero(leaves == leaf) for leaf in range(topology.leaves)]
    for order in (*orders, np.argsort(-free, kind="stable")):
        places: Allocation = fitting(free, order, shape(job, topology))
        own = phases_of(job.model, topology, places, number) if places else ()
        if places and taken.isdisjoint(link >> 1 for phase in own for link in phase.crossings):
            return tuple(topology.machines[server].name for server in places)
    return ()


def _experiment(
    topology: Topology,
    link: int,
    jobs: Sequence[ClusterJob],
    phases: Sequence[Sequence[Phase]],
) -> str:
    """The jobs with the link to themselves, both ways at once as rings send, as an experiment
    of the packet simulator."""
    rate_bps = topology.network.rates_bps[2 * link]
    sent = [
        sum(
            each.size * max(each.crossings.get(2 * link + way, 0) for way in (0, 1)) for each in own
        )
        for own in phases
    ]
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
    return json.dumps([document, topology.rtt_s, [job.gpus for job in jobs]])


def _by_packets(text: str) -> tuple[float, float]:
    """The share of the jobs' iteration time that MLTCP saves, and half of its 95 % interval."""
    from mltcp_tools.lab.experiments.reading import parse_experiment
    from mltcp_tools.lab.simulator.variants import SimulationSettings, simulate_variant

    document, rtt_s, gpus = json.loads(text)
    experiment = parse_experiment(json.dumps(document), "conflict")

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
