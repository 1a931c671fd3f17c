"""The flow simulator's rules against the packet simulator, on the experiments that both can run.

Both get the same jobs: the same compute times, starts, bytes and link. Compared are mean iteration
times over all jobs and repetitions. Besides an experiment's own arms, those of CONTENDED run under
feedback (`mlcc`), priorities, and with as many fewer bytes as aggregation of four servers sends;
where all jobs can have turns they run in those, without jitter, as the packet simulator knows of no
turns: its jobs are given computing times that begin their bursts when it is their turn.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mltcp_tools.clusters.engine.library import FlowJob, FlowSimulator, Phase, Rule
from mltcp_tools.clusters.rules import FAIR, MEASURED, MLCC, PRIORITY
from mltcp_tools.clusters.topology import Topology
from mltcp_tools.clusters.turns import SLACK, Sharing, plan_turns
from mltcp_tools.emulator.job import JobSpec, compute_times
from mltcp_tools.experiments.arms import ALONE, Arm
from mltcp_tools.experiments.experiment import Experiment
from mltcp_tools.experiments.reading import find_either, load_experiment
from mltcp_tools.experiments.tasks import parameters_of, tasks_of
from mltcp_tools.experiments.treatments import Feedback, Sincronia
from mltcp_tools.simulator.arms import BASE_RTT_S, simulate_arm
from mltcp_tools.simulator.modelled import modelled, with_mechanisms
from mltcp_tools.simulator.schedules import ScheduledJob, iterations_of, simulate

_PLAIN = (
    "two-jobs",
    "four-jobs",
    "six-jobs",
    "deep-queue",
    "unequal-jobs",
    "different-periods",
    "lockstep",
)
EXPERIMENTS = (
    *_PLAIN,
    "many-flows",
    "stragglers",
    "incompatible",
    "uneven-flows",
    "twins",
    "arrivals",
    "delay",
    "mechanisms",
    "mechanisms-deep-queue",
)
FITTED = frozenset(
    (
        "two-jobs",
        "four-jobs",
        "deep-queue",
        "incompatible",
        "many-flows",
        "uneven-flows",
        "lockstep",
        "delay",
        "stragglers",
        "twins",
    )
)
"""Those that the rules were fitted on; the others were held out."""

CONTENDED = (*_PLAIN, "incompatible")
MLCC_ARM = Arm("mlcc", "mltcp_int", treatments=(Feedback(),))
PRIORITY_ARM = Arm("priority", "reno", treatments=(Sincronia(),))
_SUMMED = 2 / 3
"""Of a ring's bytes, what is left where the network adds up the gradients of four servers."""

_FRAME, _PAYLOAD = 1514, 1448
_BOUND_LIKE = 0.03
"""A case is bound-like if the packet simulator is within so much of the bound."""


@dataclass(frozen=True)
class Case:
    """Mean iteration times of an arm in seconds: by packets, by flows, and the schedules' bound."""

    experiment: str
    arm: str
    rule: str
    packets_s: float
    flows_s: float
    bound_s: float | None

    @property
    def error(self) -> float:
        """By which share the flow simulator is off."""
        return self.flows_s / self.packets_s - 1

    @property
    def limit(self) -> float:
        """How far it may be off."""
        return 0.02 if self.bound_like else 0.05

    @property
    def bound_like(self) -> bool:
        """Whether the jobs took turns, or had the link to themselves."""
        return self.bound_s is None or self.packets_s <= self.bound_s * (1 + _BOUND_LIKE)

    def to_json(self) -> dict[str, Any]:
        """The case as a document; times in seconds."""
        return {
            "experiment": self.experiment,
            "arm": self.arm,
            "rule": self.rule,
            "fitted": self.experiment in FITTED,
            "packets_s": self.packets_s,
            "flows_s": self.flows_s,
            "bound_s": self.bound_s,
            "error": self.error,
            "limit": self.limit,
            "within": abs(self.error) <= self.limit,
        }


def validate(
    names: Iterable[str] = EXPERIMENTS, said: Callable[[str], None] = lambda name: None
) -> list[Case]:
    """Every arm of the experiments that has a rule, and each job alone. `said` hears the names."""
    cases = []
    for name in names:
        said(name)
        experiment, _ = modelled(load_experiment(find_either(name)))
        for arm in (experiment.arm(ALONE), *experiment.arms):
            rule = rule_of(experiment, arm)
            if rule is not None:
                cases.append(_case(experiment, arm, rule))
        if name in CONTENDED:
            cases += _contended(experiment)
    return cases


def _contended(experiment: Experiment) -> list[Case]:
    """The treatments that shipped experiments don't have."""
    jobs = [dataclasses.replace(job, bytes=round(job.bytes * _SUMMED)) for job in experiment.jobs]
    summed = dataclasses.replace(experiment, jobs=tuple(jobs))
    cases = [
        _case(experiment, MLCC_ARM, MLCC),
        _case(experiment, PRIORITY_ARM, PRIORITY),
        _case(summed, Arm("aggregation", "reno"), MEASURED["reno"]),
    ]
    turns = _turns_case(experiment)
    return cases if turns is None else [*cases, turns]


def _turns_case(experiment: Experiment) -> Case | None:
    """The jobs in turns, without jitter; None where they don't fit."""
    jobs = tuple(dataclasses.replace(job, jitter=0.0, start=0.0) for job in experiment.jobs)
    if any(job.bursts > 1 for job in jobs):
        return None
    sharing = [Sharing(job.name, (Phase(job.compute, job.bytes, {0: 1.0}),)) for job in jobs]
    turns = plan_turns(Topology(servers=1, rate_bps=experiment.link.rate), sharing)
    if len(turns) < len(jobs):
        return None
    iterations = experiment.iterations_of(jobs[0])
    timed, flows = [], []
    for job in jobs:
        turn, spec = turns[job.name], job.spec(iterations=iterations, seed=1)
        lone_s = job.bytes * 8 / _payload_rate(experiment) + lag_s(experiment, spec)
        compute_s = turn.turn_s - lone_s
        start_s = (turn.due_s - compute_s) % turn.turn_s
        timed.append(dataclasses.replace(job, compute=compute_s, start=start_s))
        flows.append(
            dataclasses.replace(
                _flow_job(experiment, spec, 1),
                start_s=start_s,
                turn_s=turn.turn_s,
                due_s=start_s + compute_s,
                slack_s=SLACK * turn.turn_s,
            )
        )
    arm, rule = Arm("turns", "reno"), MEASURED["reno"]
    return Case(
        experiment.name,
        arm.name,
        rule.name,
        float(np.mean(_packet_times(dataclasses.replace(experiment, jobs=tuple(timed)), arm, 1))),
        float(np.mean(_run(experiment, flows, rule))),
        float(np.mean([turn.turn_s for turn in turns.values()])),
    )


def rule_of(experiment: Experiment, arm: Arm) -> Rule | None:
    """The rule that stands for the arm; None where it has parameters that none was fitted for."""
    if arm.name == ALONE:
        return FAIR
    if arm.cc == "reno":
        return MEASURED["reno"]
    if arm.told or set(arm.parameters) - {"mechanisms"}:
        return None
    params = with_mechanisms(parameters_of(arm, experiment.jobs[0]), arm.cc)
    used = frozenset(params.mechanisms or ())
    if used == {"increase"}:
        return MEASURED["mltcp_reno"]
    return MEASURED["mltcp"] if used == {"increase", "decrease", "yield"} else None


def _case(experiment: Experiment, arm: Arm, rule: Rule) -> Case:
    packets: list[float] = []
    flows: list[float] = []
    bound: list[float] = []
    for repetition in range(1, experiment.repetitions + 1):
        packets += _packet_times(experiment, arm, repetition)
        for tasks in tasks_of(experiment, arm, repetition):
            specs = [task.spec for task in tasks]
            flows += flow_times(experiment, specs, rule, repetition)
            bound += _bound_times(experiment, specs)
    return Case(
        experiment.name,
        arm.name,
        rule.name,
        float(np.mean(packets)),
        float(np.mean(flows)),
        None if arm.name == ALONE else float(np.mean(bound)),
    )


def _packet_times(experiment: Experiment, arm: Arm, repetition: int) -> list[float]:
    documents = simulate_arm(experiment, arm, repetition).documents
    return [each["end"] - each["start"] for _, found in documents for each in found["iterations"]]


def flow_times(
    experiment: Experiment, specs: Sequence[JobSpec], rule: Rule, repetition: int = 1
) -> list[float]:
    """Iteration times, in seconds, of the jobs on the experiment's link by the flow simulator."""
    jobs = [
        _flow_job(experiment, spec, 1000 * repetition + number) for number, spec in enumerate(specs)
    ]
    return _run(experiment, jobs, rule)


def _payload_rate(experiment: Experiment) -> float:
    return experiment.link.rate * _PAYLOAD / _FRAME


def _run(experiment: Experiment, jobs: Sequence[FlowJob], rule: Rule) -> list[float]:
    link = experiment.link
    bdp = (BASE_RTT_S + link.delay) * link.rate / 8
    simulator = FlowSimulator(
        [_payload_rate(experiment)], rule, packets=[(link.queue + bdp) / _FRAME]
    )
    times: list[float] = []
    for _ in [simulator.add(job, record=True) for job in jobs]:
        done = simulator.run(1e9)
        assert done is not None
        table = simulator.iterations(done)
        times += (table[:, 1] - table[:, 0]).tolist()
        simulator.remove(done)
    return times


def _flow_job(experiment: Experiment, spec: JobSpec, seed: int) -> FlowJob:
    per_burst = spec.bytes_per_iteration // spec.bursts
    rows = np.array(list(compute_times(spec))) / spec.bursts
    return FlowJob(
        phases=(Phase(0.0, per_burst, {0: 1.0}),) * spec.bursts,
        iterations=len(rows),
        start_s=spec.start_delay_s,
        compute_s=np.repeat(rows[:, None], spec.bursts, axis=1),
        lag_s=lag_s(experiment, spec),
        seed=seed,
        flows=spec.active or spec.flows,
    )


def lag_s(experiment: Experiment, spec: JobSpec) -> float:
    """Seconds that a lone burst takes longer than its bytes: a round trip, and slow start.

    A flow begins with half of the window that fills the link and its queue, halved once for every
    time-out of idling (RFC 2861; the kernel's tcp_slow_start_after_idle), 10 segments at least, and
    doubles it every round trip.
    """
    link, flows = experiment.link, spec.active or spec.flows
    rtt_s = BASE_RTT_S + link.delay
    packet_s = _FRAME * 8 / link.rate
    full = (rtt_s / packet_s + link.queue / _FRAME) / flows
    window = max(10.0, full / 2 / 2 ** int(spec.compute_s / (0.2 + rtt_s)))
    lost_s = 0.0
    while window * flows * packet_s < rtt_s:
        lost_s += rtt_s - window * flows * packet_s
        window *= 2
    return lost_s + rtt_s


def _bound_times(experiment: Experiment, specs: Sequence[JobSpec]) -> list[float]:
    rate = experiment.link.rate * _PAYLOAD / _FRAME
    jobs = [
        ScheduledJob(
            str(number),
            spec.start_delay_s,
            list(compute_times(spec)),
            spec.bytes_per_iteration * 8 / rate + lag_s(experiment, spec),
            spec.bursts,
        )
        for number, spec in enumerate(specs)
    ]
    table = iterations_of(simulate("bound", jobs), jobs)
    return list(table["end_s"] - table["start_s"])
