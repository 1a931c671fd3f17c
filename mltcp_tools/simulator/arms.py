"""One arm of an experiment, simulated: its jobs as the emulator would run them, and what it says.

Compute times, starts and shares are drawn by the emulator's own functions from the experiment's
seeds, so a simulated and a measured arm face the same jobs.
"""

from __future__ import annotations

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
from mltcp_tools.experiments.plans import Plan, parameters_of, plans_of
from mltcp_tools.experiments.treatments import WEIGHTS, Feedback, Sincronia
from mltcp_tools.native.uapi import from_fixed
from mltcp_tools.simulator.library import Job, Link, Result, Stop, Structs, simulate
from mltcp_tools.simulator.modelled import SLOW_START_AFTER_IDLE, with_mechanisms

CONTROL_S = 1e-3
"""What a controller takes to hear of a burst and to change priorities."""
BASE_RTT_S = 100e-6
"""Round trip of an empty link without delay, as between the testbed's namespaces."""


@dataclass
class SimulatedArm:
    """What the jobs of an arm report; times are seconds from the arm's start.

    documents: of each plan, as `mltcp_tools.emulator.report` has them. events: job, flow, and the
    iteration that MLTCP saw end. duration: until the last job was done. bytes, packets, drops: of
    the link, on the wire.
    """

    documents: list[tuple[Plan, dict[str, Any]]] = field(default_factory=list)
    events: list[tuple[str, int, IterationEvent]] = field(default_factory=list)
    duration: float = 0.0
    bytes: int = 0
    packets: int = 0
    drops: int = 0


def simulate_arm(
    experiment: Experiment,
    arm: Arm,
    repetition: int,
    trace_ms: int = 0,
    stop: Stop | None = None,
) -> SimulatedArm:
    """Simulate the arm, in `alone` one job of each kind after another.

    trace_ms: milliseconds between TCP samples in the first repetition, 0 for none. Raises Stopped
    when `stop` is set meanwhile.
    """
    done = SimulatedArm()
    priorities = arm.treatment(Sincronia)
    for plans in plans_of(experiment, arm, repetition, trace_ms):
        result = simulate(
            Link(
                rate=experiment.link.rate,
                queue=experiment.link.queue,
                rtt=BASE_RTT_S + experiment.link.delay,
                loss=experiment.link.loss,
                levels=priorities.levels if priorities is not None else 0,
                weight=WEIGHTS.index(priorities.weight) if priorities is not None else 0,
                control=CONTROL_S,
            ),
            [_job(experiment, arm, plan) for plan in plans],
            seed=experiment.link_seed(repetition),
            trace=plans[0].trace_ms / 1000,
            slow_start_after_idle=experiment.sysctls.get(SLOW_START_AFTER_IDLE, "1") != "0",
            stop=stop,
        )
        _add(done, plans, result)
    return done


def _job(experiment: Experiment, arm: Arm, plan: Plan) -> Job:
    spec, params = plan.spec, None
    if arm.is_mltcp:
        params = params_fields(
            with_mechanisms(parameters_of(arm, experiment.job(plan.name)), arm.cc)
        )
    feedback = arm.treatment(Feedback)
    computes = list(compute_times(spec))
    return Job(
        start=spec.start_delay_s,
        compute=computes,
        bytes=[spec.shares(burst + 1) for burst in range(len(computes) * spec.bursts)],
        bursts=spec.bursts,
        params=params,
        rate=feedback.fields() if feedback is not None else None,
    )


def _add(done: SimulatedArm, plans: Sequence[Plan], result: Result) -> None:
    """Add what ran after the rest of the arm."""
    start = done.duration
    for number, plan in enumerate(plans):
        report = Report(plan.name, asdict(plan.spec))
        report.iterations += _iterations(plan.spec, result.bursts[number], start)
        samples = result.samples[result.samples["job"] == number]
        report.samples += [_sample(sample, start) for sample in samples]
        done.documents.append((plan, report.document()))
    done.events += [
        (plans[event["job"]].name, int(event["flow"]), _event(event, start))
        for event in result.events
    ]
    done.duration += max(float(bursts["end_ns"][-1]) for bursts in result.bursts) * 1e-9
    done.bytes += result.counters["forwarded_bytes"]
    done.packets += result.counters["forwarded"]
    done.drops += result.counters["dropped"]


def _iterations(spec: JobSpec, bursts: Structs, start: float) -> list[Iteration]:
    iterations = []
    began = start + spec.start_delay_s
    for number, compute_s in enumerate(compute_times(spec)):
        first = number * spec.bursts
        own = tuple(
            Burst(
                burst=burst + 1,
                start=start + float(times["start_ns"]) * 1e-9,
                end=start + float(times["end_ns"]) * 1e-9,
                bytes=sum(spec.shares(first + burst + 1)),
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
