"""One arm of an experiment, simulated: its jobs as the emulator would run them, and what it says.

Compute times, starts and shares are drawn by the emulator's own functions from the experiment's
seeds, so a simulated and a measured arm face the same jobs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from mltcp_tools.backends.base import IterationEvent
from mltcp_tools.backends.params import params_fields
from mltcp_tools.emulator.job import JobSpec, compute_times
from mltcp_tools.emulator.report import Burst, Iteration, Sample
from mltcp_tools.emulator.report import Result as Report
from mltcp_tools.experiments.arms import Arm
from mltcp_tools.experiments.experiment import Experiment
from mltcp_tools.experiments.links import Link as Bottleneck
from mltcp_tools.experiments.tasks import Task, parameters_of, tasks_of
from mltcp_tools.experiments.treatments import WEIGHTS, Feedback, Sincronia
from mltcp_tools.native.uapi import from_fixed
from mltcp_tools.runs.recorder import LinkCounters
from mltcp_tools.simulator.inputs import Link, PacketJob, Priorities
from mltcp_tools.simulator.library import Result, Stop, Structs, simulate
from mltcp_tools.simulator.modelled import SLOW_START_AFTER_IDLE, with_mechanisms
from mltcp_tools.simulator.programs import HOPS, program_of

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
    none. rtt_s: round trip of an empty link without delay, seconds.
    """

    trace_ms: int = 0
    mtu: int = 1500
    join_s: float = 0.0
    rtt_s: float = BASE_RTT_S


@dataclass
class SimulatedArm:
    """What the jobs of an arm report; times are seconds from the arm's start.

    documents: of each task, as `mltcp_tools.emulator.report` has them. events: job, flow (those
    that answer are numbered behind the others), and the iteration that MLTCP saw end. duration:
    until the last job was done. counters: of the links.
    """

    documents: list[tuple[Task, dict[str, Any]]] = field(default_factory=list)
    events: list[tuple[str, int, IterationEvent]] = field(default_factory=list)
    duration: float = 0.0
    counters: LinkCounters = field(default_factory=LinkCounters)


def simulate_arm(
    experiment: Experiment,
    arm: Arm,
    repetition: int,
    settings: Settings = Settings(),
    stop: Stop | None = None,
) -> SimulatedArm:
    """Simulate the arm, in `alone` one job of each kind after another.

    Raises Stopped when `stop` is set meanwhile.
    """
    done = SimulatedArm()
    for tasks in tasks_of(experiment, arm, repetition, settings.trace_ms):
        result = simulate(
            _links(experiment, settings.rtt_s),
            [_job(experiment, arm, repetition, task) for task in tasks],
            seed=experiment.link_seed(repetition),
            trace=tasks[0].trace_ms / 1000,
            slow_start_after_idle=experiment.sysctls.get(SLOW_START_AFTER_IDLE, "1") != "0",
            mss=settings.mtu - MSS_BELOW_MTU,
            join=settings.join_s,
            fine_stamps=arm.fine_stamps,
            priorities=_priorities(arm),
            stop=stop,
        )
        _add(done, tasks, result)
    return done


def _priorities(arm: Arm) -> Priorities:
    settings = arm.treatment(Sincronia)
    if settings is None:
        return Priorities()
    return Priorities(settings.levels, WEIGHTS.index(settings.weight), CONTROL_S, settings.floor)


def _links(experiment: Experiment, rtt_s: float) -> list[Link]:
    """The links towards the receiver, and as many back: link n leads back as n + half of them."""
    rtt_s /= HOPS if experiment.fabric else 1
    ahead = [_link(link, rtt_s) for link in experiment.links.values() or [experiment.link]]
    return [*ahead, *(dataclasses.replace(link, loss=0.0) for link in ahead)]


def _link(link: Bottleneck, rtt_s: float) -> Link:
    # RED acts from a quarter of the queue on, and on all from three quarters on (qdiscs.py); a
    # threshold is a quarter (marking.py).
    low, high = link.queue // 4, link.queue * 3 // 4
    marks = {"red": (low, high), "threshold": (low, low)}.get(link.aqm)
    return Link(link.rate, link.queue, rtt_s + link.delay, link.loss, marks)


def _path(experiment: Experiment, task: Task) -> dict[str, tuple[int, ...]]:
    """The links that segments and ACKs cross.

    Over one link, ACKs of jobs that only send meet no queue that matters.
    """
    names = list(experiment.links)
    ahead = tuple(names.index(name) for name in experiment.job(task.name).links) or (0,)
    back = tuple(number + max(1, len(names)) for number in reversed(ahead))
    if task.spec.direction == "receive":
        return {"ahead": back, "back": ahead}
    two_way = any(job.direction != "send" for job in experiment.jobs)
    return {"ahead": ahead, "back": back if names or two_way else ()}


def _job(experiment: Experiment, arm: Arm, repetition: int, task: Task) -> PacketJob:
    spec, params = task.spec, None
    feedback = arm.treatment(Feedback)
    if arm.is_mltcp:
        params = params_fields(
            with_mechanisms(parameters_of(arm, experiment.job(task.name)), arm.cc)
        )
    computes = list(compute_times(spec))
    program = program_of(experiment, repetition, task)
    bursts = range(len(computes) * spec.bursts) if program is None else ()
    shares = [spec.shares(burst + 1) for burst in bursts]
    return PacketJob(
        start=spec.start_delay_s,
        compute=computes,
        bytes=shares,
        compressed=[spec.compress.sizes(each) for each in shares] if spec.compress else None,
        compress=[spec.compress.seconds(each) for each in shares] if spec.compress else (),
        bursts=spec.bursts,
        params=params,
        rate=feedback.fields() if feedback is not None else None,
        base="dctcp" if arm.cc.endswith("dctcp") else "reno",
        both=spec.direction == "both",
        chunk=spec.chunk or 0,
        program=program,
        **({} if program else _path(experiment, task)),
    )


def _add(done: SimulatedArm, tasks: Sequence[Task], result: Result) -> None:
    """Add what ran after the rest of the arm."""
    start = done.duration
    for number, task in enumerate(tasks):
        report = Report(task.name, asdict(task.spec))
        report.iterations += _iterations(task.spec, result.bursts[number], start)
        samples = result.samples[result.samples["job"] == number]
        report.samples += [_sample(sample, start) for sample in samples]
        done.documents.append((task, report.document()))
    done.events += [
        (tasks[event["job"]].name, int(event["flow"]), _event(event, start))
        for event in result.events
    ]
    done.duration += max(float(bursts["end_ns"][-1]) for bursts in result.bursts) * 1e-9
    done.counters += LinkCounters(
        bytes=result.counters["forwarded_bytes"],
        packets=result.counters["forwarded"],
        drops=result.counters["dropped"],
        marks=result.counters["marked"],
    )


def _iterations(spec: JobSpec, bursts: Structs, start: float) -> list[Iteration]:
    iterations = []
    began = start + spec.start_delay_s
    if spec.pattern is not None:
        for number, times in enumerate(bursts, 1):
            # A rank may send before the slowest one is done with the iteration before.
            first, first_end, end = (
                max(began, start + float(times[name]) * 1e-9)
                for name in ("start_ns", "first_end_ns", "end_ns")
            )
            burst = Burst(1, first, end, sum(spec.shares(1)), 0.0, first_end)
            iterations.append(Iteration(number, began, end, first - began, (burst,)))
            began = end
        return iterations
    for number, compute_s in enumerate(compute_times(spec)):
        first = number * spec.bursts
        own = tuple(
            Burst(
                burst=burst + 1,
                start=start + float(times["start_ns"]) * 1e-9,
                end=start + float(times["end_ns"]) * 1e-9,
                bytes=int(times["bytes"]),
                late_s=0.0,
                first_end=start + float(times["first_end_ns"]) * 1e-9,
            )
            for burst, times in enumerate(bursts[first : first + spec.bursts])
        )
        iterations.append(Iteration(number + 1, began, own[-1].end, compute_s, own))
        began = own[-1].end
    return iterations


def _sample(sample: Any, start: float) -> Sample:
    return Sample(
        flow=int(sample["flow"]),
        iteration=int(sample["iteration"]),
        time=start + float(sample["time_ns"]) * 1e-9,
        cwnd=int(sample["cwnd"]),
        ssthresh=int(sample["ssthresh"]),
        rtt_us=int(sample["srtt_us"]),
        retransmits=int(sample["retransmits"]),
        bytes_acked=int(sample["acked"]),
    )


def _event(event: Any, start: float) -> IterationEvent:
    """The event without what only a socket has: addresses, and a cookie."""
    return IterationEvent(
        job_id=int(event["job"]) + 1,
        cookie=0,
        local_addr="",
        local_port=0,
        remote_addr="",
        remote_port=0,
        iteration=int(event["iteration"]),
        first_ack_s=start + float(event["first_ack_ns"]) * 1e-9,
        last_ack_s=start + float(event["last_ack_ns"]) * 1e-9,
        bytes=int(event["bytes"]),
        retransmits=int(event["retransmits"]),
        srtt_us=int(event["srtt_us"]),
        cwnd=int(event["cwnd"]),
        ratio=from_fixed(int(event["ratio"])),
    )
