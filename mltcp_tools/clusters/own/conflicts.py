# SPDX-License-Identifier: BSD-2-Clause
"""The pairs of jobs that slow each other most, the link, and what would avoid it.

The log is simulated as it was; each pair's loss is the time for which the two sent longer than
alone because that link was full. For the worst pairs three remedies are tried: other servers that
were free when the later job began; a shift of one job's iterations (Cassini's score); and MLTCP,
packet by packet, as the flow model can't tell its gain from its own error. For packets a burst is
shortened to BURST_QUEUES port queues, and computing and timeouts with it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mltcp_tools.base.units import format_seconds
from mltcp_tools.clusters.engine.library import Phase
from mltcp_tools.clusters.intervals import interval
from mltcp_tools.clusters.models import Allocation, phases_of
from mltcp_tools.clusters.own.replay import by_start, shortened
from mltcp_tools.clusters.policies import policy
from mltcp_tools.clusters.policies.placing import fitting, shape
from mltcp_tools.clusters.rules import treatment
from mltcp_tools.clusters.simulate import ClusterSimulator, Losses
from mltcp_tools.clusters.time_shifts import FITS, Sharing, pair_plan
from mltcp_tools.clusters.topology import Topology
from mltcp_tools.clusters.view import Ints
from mltcp_tools.clusters.workload import ClusterJob, Workload

MOST = 10
"""Conflicts that are shown."""
BURST_QUEUES = 10
_PACKET_RUNS = 5
_ITERATIONS = 30
_SETTLED = 10
"""Iterations before which MLTCP may not have interleaved the jobs."""


@dataclass(frozen=True)
class Conflict:
    """Two jobs that slow each other on a link. hours: GPU hours that both lose there. places:
    servers that were free for the later job when it began, on which it shares no link with the
    other; empty: none. score: Cassini's for the two on their links, 1 if a shift makes them fit;
    None: not known. shift_s: of the second job's bursts behind the first's. mltcp: share of both
    jobs' iteration time that MLTCP saves by packets, negative where it costs, and half of its 95 %
    interval.
    """

    link: str
    jobs: tuple[str, str]
    models: tuple[str, str]
    hours: float
    places: tuple[str, ...]
    score: float | None
    shift_s: float
    mltcp: float = 0.0
    mltcp_half: float = 0.0

    @property
    def remedies(self) -> tuple[str, str, str]:
        """Placement, shift and MLTCP in words."""
        placed = f"{self.jobs[1]} on {', '.join(self.places)}" if self.places else "nothing free"
        if self.score is None:
            shift = "not known"
        elif self.score >= FITS:
            shift = f"by {format_seconds(self.shift_s)} (score {self.score:.3f})"
        else:
            shift = f"none fits (score {self.score:.3f})"
        shown = f"{100 * self.mltcp:+.1f}% ± {100 * self.mltcp_half:.1f}"
        told = abs(self.mltcp) > self.mltcp_half
        word = "no effect" if not told else "saves" if self.mltcp > 0 else "costs"
        return placed, shift, f"{word} {shown}"

    def to_json(self) -> dict[str, Any]:
        """As a document."""
        names = ("placement", "shift", "mltcp_says")
        return vars(self) | dict(zip(names, self.remedies, strict=True))


def conflicts(workload: Workload, base: str, most: int = MOST) -> list[Conflict]:
    """The worst of the workload's conflicts, under the treatment that jobs have now."""
    whole = by_start(workload)
    short = shortened(whole)
    losses = Losses()
    outcome = ClusterSimulator(short, policy("replay"), treatment(base), losses=losses).run()
    factors = [
        job.iterations / own.iterations for job, own in zip(whole.jobs, short.jobs, strict=True)
    ]
    hours = {
        (link, a, b): lost_s * max(factors[a], factors[b]) / 3600
        for (link, a, b), lost_s in losses.by_pair.items()
    }
    begun = {done.name: done.start_s for done in outcome.jobs}
    ended = {done.name: done.end_s for done in outcome.jobs}
    found: list[tuple[Conflict, str]] = []
    placed = [key for key in hours if all(whole.jobs[number].placement for number in key[1:])]
    for key in sorted(placed, key=lambda key: -hours[key])[:most]:
        numbers = sorted(key[1:], key=lambda number: begun[short.jobs[number].name])
        start_s = begun[short.jobs[numbers[1]].name]
        free = whole.topology.gpus_of.copy()
        for number, job in enumerate(whole.jobs):
            if begun[job.name] <= start_s < ended[job.name] and number != numbers[1]:
                for server, gpus in job.placement:
                    free[server] -= gpus
        found.append(_conflict(whole, key[0], numbers, hours[key], free))
    # The packet simulator lets other threads run; pairs of the same models are one experiment.
    experiments = list({experiment for _, experiment in found})
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        saved = dict(zip(experiments, pool.map(_by_packets, experiments), strict=True))
    return [
        replace(each, mltcp=saved[experiment][0], mltcp_half=saved[experiment][1])
        for each, experiment in found
    ]


def _conflict(
    workload: Workload, link: int, numbers: Sequence[int], hours: float, free: Ints
) -> tuple[Conflict, str]:
    """The conflict of two jobs, the later one last, and the experiment for MLTCP."""
    topology, jobs = workload.topology, [workload.jobs[number] for number in numbers]
    phases = [
        phases_of(job.model, topology, dict(job.placement), number)
        for job, number in zip(jobs, numbers, strict=True)
    ]
    sharing = [Sharing(str(n), own) for n, own in zip(numbers, phases, strict=True)]
    plan = pair_plan(topology, sharing)
    found = Conflict(
        list(topology.network.links)[link],
        (jobs[0].name, jobs[1].name),
        (jobs[0].model.name, jobs[1].model.name),
        hours,
        _apart(topology, jobs[1], numbers[1], phases[0], free),
        None if plan is None else plan[0],
        0.0 if plan is None else plan[1],
    )
    return found, _experiment(topology, link, jobs, phases)


def _apart(
    topology: Topology, job: ClusterJob, number: int, others: Sequence[Phase], free: Ints
) -> tuple[str, ...]:
    """Names of free servers on which the job shares no link with the other one's phases."""
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
    """The two jobs with the link to themselves, both ways at once as rings send, as an experiment
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
            # So that both are there for about as long.
            "iterations": min(10 * _ITERATIONS, round(_ITERATIONS * max(alone_s) / own_s)),
        }
        for name, job, size, own_s in zip("ab", jobs, sent, alone_s, strict=True)
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
    from mltcp_tools.lab.simulator.variants import Settings, simulate_variant

    document, rtt_s, gpus = json.loads(text)
    experiment = parse_experiment(json.dumps(document), "conflict")

    def times_s(variant: str, repetition: int) -> list[float]:
        done = simulate_variant(
            experiment, experiment.variant(variant), repetition, Settings(rtt_s=rtt_s)
        )
        own = [report["iterations"][_SETTLED:] for _, report in done.documents]
        return [float(np.mean([each["end"] - each["start"] for each in job])) for job in own]

    saved = []
    for repetition in range(1, _PACKET_RUNS + 1):
        both = zip(times_s("reno", repetition), times_s("mltcp", repetition), strict=True)
        shares = [1 - mltcp_s / reno_s for reno_s, mltcp_s in both]
        saved.append(float(np.average(shares, weights=gpus)))
    return interval(saved)
