"""One arm of an experiment, simulated: its jobs as the emulator would run them, and what it says.

Compute times, starts and shares are drawn by the emulator's own functions from the experiment's
seeds, so a simulated and a measured arm face the same jobs.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mltcp_tools.backends.base import IterationEvent, JobParams
from mltcp_tools.backends.params import params_fields
from mltcp_tools.emulator.job import compute_times
from mltcp_tools.emulator.turns import Turns
from mltcp_tools.experiments.arms import Arm, is_mltcp
from mltcp_tools.experiments.experiment import Experiment
from mltcp_tools.experiments.links import Link as Bottleneck
from mltcp_tools.experiments.neighbours import Neighbour
from mltcp_tools.experiments.tasks import Task, neighbour_tasks, parameters_of, tasks_of
from mltcp_tools.experiments.treatments import WEIGHTS, Feedback, Sincronia
from mltcp_tools.planning.arms import with_turns
from mltcp_tools.runs.recorder import LinkCounters
from mltcp_tools.simulator.documents import document_of, event_of
from mltcp_tools.simulator.inputs import Link, PacketJob, Priorities
from mltcp_tools.simulator.library import Result, Stop, simulate
from mltcp_tools.simulator.modelled import (
    SLOW_START_AFTER_IDLE,
    base_of,
    rto_min_s,
    with_mechanisms,
)
from mltcp_tools.simulator.programs import HOPS, program_of
from mltcp_tools.simulator.queues import WatchedQueue

BASE_RTT_S = 100e-6
"""Round trip of an empty link without delay, as between the testbed's namespaces."""


CONTROL_S = 1e-3
"""What a controller takes to hear of a burst and to change priorities."""

MSS_BELOW_MTU = 52
"""What IPv4 and TCP with time stamps take of a packet, bytes."""


@dataclass(frozen=True)
class Settings:
    """How to simulate.

    trace_ms: milliseconds between TCP samples in the first repetition, 0 for none. mtu: bytes of a
    packet without Ethernet's own. join_s: seconds within which receivers join segments (GRO), 0 for
    none. rtt_s: round trip of an empty link without delay, seconds. bucket: bytes that pass a link
    at once after idle time, 0 but for links that are token buckets.
    """

    trace_ms: int = 0
    mtu: int = 1500
    join_s: float = 0.0
    rtt_s: float = BASE_RTT_S
    bucket: int = 0


@dataclass
class SimulatedArm:
    """What the jobs of an arm report; times are seconds from the arm's start.

    documents: of each task, as `mltcp_tools.emulator.report` has them. neighbours: likewise of
    each neighbour. events: job, flow (those that answer are numbered behind the others), and the
    iteration that MLTCP saw end. duration: until the last job was done. counters: of the links.
    queues: of those that jobs send over, in each run.
    """

    documents: list[tuple[Task, dict[str, Any]]] = field(default_factory=list)
    neighbours: list[tuple[Task, dict[str, Any]]] = field(default_factory=list)
    events: list[tuple[str, int, IterationEvent]] = field(default_factory=list)
    duration: float = 0.0
    counters: LinkCounters = field(default_factory=LinkCounters)
    queues: list[WatchedQueue] = field(default_factory=list)


def simulate_arm(
    experiment: Experiment,
    arm: Arm,
    repetition: int,
    settings: Settings = Settings(),
    stop: Stop | None = None,
    turns: Mapping[str, Turns] | None = None,
) -> SimulatedArm:
    """Simulate the arm, in `alone` one job of each kind after another.

    turns: of each job, in an arm that is planned. Raises Stopped when `stop` is set meanwhile.
    """
    done = SimulatedArm()
    links = _links(experiment, settings)
    neighbours = neighbour_tasks(experiment, arm, repetition)
    for tasks in tasks_of(experiment, arm, repetition, settings.trace_ms):
        if turns is not None:
            tasks = [with_turns(experiment, task, turns) for task in tasks]
        jobs = [_job(experiment, arm, repetition, task) for task in tasks]
        requests = _requests_at_first(experiment)
        while True:
            others = [
                _neighbour(experiment, arm, each, task, requests)
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
                fine_stamps=arm.fine_stamps,
                priorities=_priorities(arm),
                stop=stop,
            )
            if not any(bursts["end_ns"][-1] for bursts in result.bursts[len(jobs) :]):
                break
            requests *= 2  # some neighbour had no more of them
        _add(done, tasks, neighbours, result)
        ahead = len(links) // 2
        receiving = all(job.direction == "receive" for job in experiment.jobs)
        sending = range(ahead, len(links)) if receiving else range(ahead)
        done.queues += [WatchedQueue(links[n].queue, result.queues[n]) for n in sending]
    return done


def _requests_at_first(experiment: Experiment) -> int:
    """How many requests of a neighbour to draw, for a run that is as long as we guess."""
    link = min(link.rate for link in experiment.links.values() or [experiment.link])
    run_s = 2 * max(
        experiment.iterations_of(job) * (job.compute + len(experiment.jobs) * 8 * job.bytes / link)
        for job in experiment.jobs
    )
    pauses = [max(each.think, 1e-3) for each in experiment.neighbours if each.size is not None]
    return int(run_s / min(pauses)) + 2 if pauses else 1


def _priorities(arm: Arm) -> Priorities:
    settings = arm.treatment(Sincronia)
    if settings is None:
        return Priorities()
    return Priorities(settings.levels, WEIGHTS.index(settings.weight), CONTROL_S, settings.floor)


def _links(experiment: Experiment, settings: Settings) -> list[Link]:
    """The links towards the receiver, and as many back: link n leads back as n + half of them."""
    rtt_s = settings.rtt_s / (HOPS if experiment.fabric else 1)
    bottlenecks = experiment.links.values() or [experiment.link]
    ahead = [_link(link, rtt_s, settings.bucket) for link in bottlenecks]
    return [*ahead, *(dataclasses.replace(link, loss=0.0) for link in ahead)]


def _link(link: Bottleneck, rtt_s: float, bucket: int) -> Link:
    # RED acts from a quarter of the queue on, and on all from three quarters on (qdiscs.py); a
    # threshold is a quarter (marking.py).
    low, high = link.queue // 4, link.queue * 3 // 4
    marks = {"red": (low, high), "threshold": (low, low)}.get(link.aqm)
    return Link(link.rate, link.queue, rtt_s + link.delay, link.loss, marks, bucket)


def _path(experiment: Experiment, names: Sequence[str], direction: str) -> dict[str, Any]:
    """The links that segments and ACKs cross, over the links with these names.

    Over one link, ACKs of jobs that only send meet no queue that matters.
    """
    known = list(experiment.links)
    ahead = tuple(known.index(name) for name in names) or (0,)
    back = tuple(number + max(1, len(known)) for number in reversed(ahead))
    if direction == "receive":
        return {"ahead": back, "back": ahead}
    two_way = any(job.direction != "send" for job in experiment.jobs)
    return {"ahead": ahead, "back": back if known or two_way else ()}


def _job(experiment: Experiment, arm: Arm, repetition: int, task: Task) -> PacketJob:
    spec, job = task.spec, experiment.job(task.name)
    computes = list(compute_times(spec))
    program = program_of(experiment, repetition, task)
    bursts = range(len(computes) * spec.bursts) if program is None else ()
    shares = [spec.shares(burst + 1) for burst in bursts]
    start = spec.start_delay_s if spec.turns is None else spec.turns.first(0.0, spec.start_delay_s)
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
        turns=spec.turns,
        due=start + spec.compute_s / spec.bursts,
        trace=task.trace_ms / 1000,
        **_congestion_control(arm, arm.cc, parameters_of(arm, job)),
        **({} if program else _path(experiment, job.links, spec.direction)),
    )


def _neighbour(
    experiment: Experiment, arm: Arm, neighbour: Neighbour, task: Task, requests: int
) -> PacketJob:
    """The neighbour, with so many requests; a bulk flow has one, which doesn't end."""
    count = 1 if neighbour.size is None else requests
    return PacketJob(
        start=task.spec.start_delay_s,
        compute=list(itertools.islice(compute_times(task.spec), count)),
        bytes=[[task.spec.bytes_per_iteration]] * count,
        trace=task.trace_ms / 1000,
        neighbour=True,
        **_congestion_control(arm, neighbour.cc_in(arm.cc), JobParams()),
        **_path(experiment, neighbour.links, "send"),
    )


def _congestion_control(arm: Arm, cc: str, params: JobParams) -> dict[str, Any]:
    feedback = arm.treatment(Feedback)
    follows = feedback is not None and cc == "mltcp_int"
    return {
        "base": base_of(cc),
        "params": params_fields(with_mechanisms(params, cc)) if is_mltcp(cc) else None,
        "rate": feedback.fields() if feedback is not None and follows else None,
    }


def _add(
    done: SimulatedArm, tasks: Sequence[Task], neighbours: Sequence[Task], result: Result
) -> None:
    """Add what ran after the rest of the arm."""
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
