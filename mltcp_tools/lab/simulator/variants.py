# SPDX-License-Identifier: BSD-2-Clause
"""One variant of an experiment, simulated: its jobs as the emulator would run them, and what it
says.

Compute times, starts and shares are drawn by the emulator's own functions from the experiment's
seeds, so a simulated and a measured variant face the same jobs.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from mltcp_tools.kernel.backends.base import IterationEvent, JobParams
from mltcp_tools.kernel.backends.params import params_fields
from mltcp_tools.kernel.congestion_controls import base_of, is_mltcp
from mltcp_tools.kernel.native.uapi import TRUSTED
from mltcp_tools.lab.emulator.job import compute_times
from mltcp_tools.lab.experiments.experiment import Experiment
from mltcp_tools.lab.experiments.links import Link
from mltcp_tools.lab.experiments.neighbours import Neighbour
from mltcp_tools.lab.experiments.tasks import ClientTask, neighbour_tasks, tasks_of
from mltcp_tools.lab.experiments.variants import Variant
from mltcp_tools.lab.runs.recorder import LinkCounters
from mltcp_tools.lab.simulator.documents import document_of, event_of
from mltcp_tools.lab.simulator.inputs import PacketJob, SimulatedLink
from mltcp_tools.lab.simulator.library import SimulationResult, StopFlag, simulate
from mltcp_tools.lab.simulator.modelled import (
    SLOW_START_AFTER_IDLE,
    rto_min_s,
    with_mechanisms,
)
from mltcp_tools.lab.simulator.programs import HOPS, program_of
from mltcp_tools.lab.simulator.treatments import SimulatedTreatments, of_job, of_run

BASE_RTT_S = 100e-6
"""Round trip of an empty link without delay, as between the testbed's namespaces."""


MSS_BELOW_MTU = 52
"""The part of a packet that IPv4 and TCP with timestamps take, bytes."""


@dataclass(frozen=True)
class SimulationSettings:
    """The settings of a simulation.

    trace_ms: milliseconds between TCP samples in the first repetition, 0 for none. mtu: bytes of a
    packet without Ethernet's own. join_s: seconds within which receivers join segments (GRO), 0 for
    none. coalescing_s: the longest interrupt coalescing of hosts, seconds. rtt_s: RTT of an
    empty link without delay, seconds. bucket: bytes that pass a link at once after idle time, 0
    but for links that are token buckets.
    """

    trace_ms: int = 0
    mtu: int = 1500
    join_s: float = 0.0
    rtt_s: float = BASE_RTT_S
    bucket: int = 0
    coalescing_s: float = 0.0


@dataclass
class SimulatedVariant:
    """The reports of a variant's jobs; times are seconds from the variant's start.

    documents: of each task, as `mltcp_tools.lab.emulator.report` has them. neighbours: likewise of
    each neighbour. events: job, flow (those that answer are numbered behind the others), and the
    iteration that MLTCP saw end. duration: until the last job was done. counters: of the links.
    """

    documents: list[tuple[ClientTask, dict[str, Any]]] = field(default_factory=list)
    neighbours: list[tuple[ClientTask, dict[str, Any]]] = field(default_factory=list)
    events: list[tuple[str, int, IterationEvent]] = field(default_factory=list)
    duration: float = 0.0
    counters: LinkCounters = field(default_factory=LinkCounters)


def simulate_variant(
    experiment: Experiment,
    variant: Variant,
    repetition: int,
    settings: SimulationSettings = SimulationSettings(),
    stop: StopFlag | None = None,
    treatments: SimulatedTreatments | None = None,
) -> SimulatedVariant:
    """Simulate the variant, in `alone` one job of each kind after another.

    treatments: those of the run, where they know more than the experiment says. Raises Stopped
    when `stop` is set meanwhile.
    """
    treatments = treatments or SimulatedTreatments(experiment, [variant])
    done = SimulatedVariant()
    links = _links(experiment, settings)
    neighbours = neighbour_tasks(experiment, variant, repetition)
    for tasks in tasks_of(experiment, variant, repetition, settings.trace_ms):
        tasks = [treatments.adapt(variant, task) for task in tasks]
        jobs = [_job(experiment, variant, repetition, task) for task in tasks]
        requests = _requests_at_first(experiment)
        while True:
            others = [
                _neighbour(experiment, variant, each, task, requests)
                for each, task in zip(experiment.neighbours, neighbours, strict=False)
            ]
            result = simulate(
                links,
                [*jobs, *others],
                seed=experiment.link_seed(repetition),
                slow_start_after_idle=experiment.sysctls.get(SLOW_START_AFTER_IDLE, "1") != "0",
                rto_min=rto_min_s(experiment),
                mss=settings.mtu - MSS_BELOW_MTU,
                join=settings.join_s,
                coalescing=settings.coalescing_s,
                stop=stop,
                **of_run(variant),
            )
            if not any(bursts["end_ns"][-1] for bursts in result.bursts[len(jobs) :]):
                break
            requests *= 2  # some neighbour had no more of them
        _add(done, tasks, neighbours, result)
    return done


def _requests_at_first(experiment: Experiment) -> int:
    """Return the number of a neighbour's requests to draw for a run as long as we guess."""
    link = min(link.rate for link in experiment.links.values() or [experiment.link])
    run_s = 2 * max(
        experiment.iterations_of(job) * (job.compute + len(experiment.jobs) * 8 * job.bytes / link)
        for job in experiment.jobs
    )
    pauses = [max(each.think, 1e-3) for each in experiment.neighbours if each.size is not None]
    return int(run_s / min(pauses)) + 2 if pauses else 1


def _links(experiment: Experiment, settings: SimulationSettings) -> list[SimulatedLink]:
    """The links towards the receiver, and as many back: link n leads back as n + half of them."""
    rtt_s = settings.rtt_s / (HOPS if experiment.fabric else 1)
    bottlenecks = experiment.links.values() or [experiment.link]
    ahead = [_link(link, rtt_s, settings.bucket) for link in bottlenecks]
    return [*ahead, *(dataclasses.replace(link, loss=0.0) for link in ahead)]


def _link(link: Link, rtt_s: float, bucket: int) -> SimulatedLink:
    # RED acts from a quarter of the queue on, and on all from three quarters on (qdiscs.py); a
    # threshold is a quarter (marking.py).
    low, high = link.queue // 4, link.queue * 3 // 4
    marks = {"red": (low, high), "threshold": (low, low)}.get(link.aqm)
    return SimulatedLink(link.rate, link.queue, rtt_s + link.delay, link.loss, marks, bucket)


def _path(experiment: Experiment, names: Sequence[str]) -> dict[str, Any]:
    """The links that segments and ACKs cross, over the links with these names.

    Over one link, ACKs of jobs that only send meet no queue that matters.
    """
    known = list(experiment.links)
    ahead = tuple(known.index(name) for name in names) or (0,)
    back = tuple(number + max(1, len(known)) for number in reversed(ahead))
    two_way = any(job.direction == "both" for job in experiment.jobs)
    return {"ahead": ahead, "back": back if known or two_way else ()}


def _job(experiment: Experiment, variant: Variant, repetition: int, task: ClientTask) -> PacketJob:
    spec, job = task.spec, experiment.job(task.name)
    computes = list(compute_times(spec))
    program = program_of(experiment, repetition, task)
    bursts = range(len(computes) * spec.bursts) if program is None else ()
    shares = [spec.shares(burst + 1) for burst in bursts]
    start = (
        spec.start_delay_s
        if spec.time_shifts is None
        else spec.time_shifts.first(0.0, spec.start_delay_s)
    )
    return PacketJob(
        start=start,
        compute=computes,
        bytes=shares,
        compressed=[spec.compress.sizes(each) for each in shares] if spec.compress else None,
        compress=[spec.compress.seconds(each) for each in shares] if spec.compress else (),
        bursts=spec.bursts,
        both=spec.direction == "both",
        chunk=spec.chunk or 0,
        program=program,
        time_shifts=spec.time_shifts,
        due=start + spec.compute_s / spec.bursts,
        trace=task.trace_ms / 1000,
        **_congestion_control(variant.cc, variant.params, trusted=variant.attached),
        **of_job(variant, variant.cc),
        **({} if program else _path(experiment, job.links)),
    )


def _neighbour(
    experiment: Experiment,
    variant: Variant,
    neighbour: Neighbour,
    task: ClientTask,
    requests: int,
) -> PacketJob:
    """The neighbour, with so many requests; a bulk flow has one, which doesn't end."""
    count = 1 if neighbour.size is None else requests
    cc = neighbour.cc_in(variant.cc)
    return PacketJob(
        start=task.spec.start_delay_s,
        compute=list(itertools.islice(compute_times(task.spec), count)),
        bytes=[[task.spec.bytes_per_iteration]] * count,
        trace=task.trace_ms / 1000,
        neighbour=True,
        **_congestion_control(cc, JobParams(), trusted=False),
        **of_job(variant, cc),
        **_path(experiment, neighbour.links),
    )


def _congestion_control(cc: str, params: JobParams, *, trusted: bool) -> dict[str, Any]:
    if not is_mltcp(cc):
        return {"base": base_of(cc), "params": None}
    fields = params_fields(with_mechanisms(params, cc))
    if trusted:
        fields["mechanisms"] |= TRUSTED
    return {"base": base_of(cc), "params": fields}


def _add(
    done: SimulatedVariant,
    tasks: Sequence[ClientTask],
    neighbours: Sequence[ClientTask],
    result: SimulationResult,
) -> None:
    """Add what ran after the rest of the variant."""
    start = done.duration
    for number, task in enumerate((*tasks, *neighbours)):
        document = document_of(task, number, result, start)
        (done.documents if number < len(tasks) else done.neighbours).append((task, document))
    done.events += [
        (tasks[event["job"]].name, int(event["flow"]), event_of(event, start))
        for event in result.events
        if event["job"] < len(tasks)
    ]
    ends = [float(bursts["end_ns"][-1]) for bursts in result.bursts[: len(tasks)]]
    done.duration += max(ends) * 1e-9
    done.counters += LinkCounters(
        bytes=result.counters["forwarded_bytes"],
        packets=result.counters["forwarded"],
        drops=result.counters["dropped"],
        marks=result.counters["marked"],
    )
