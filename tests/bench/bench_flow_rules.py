# SPDX-License-Identifier: BSD-2-Clause
"""The flow simulator's rules against the packet simulator, on experiments that both can run.

    python tests/bench/bench_flow_rules.py [EXPERIMENT ...]

Both get the same jobs: the same compute times, starts, bytes and links. Compared are mean iteration
times over all jobs and repetitions, and what a variant gains over reno: a small error of both times
may be all of a gain. An effect below the error of its rule's gains is none (`UNTOLD`).

"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.as_flows import flow_times, lag_s

from mltcp_tools.clusters.engine.library import Rule
from mltcp_tools.clusters.rules import FAIR, MLTCP, RENO
from mltcp_tools.lab.emulator.job import compute_times
from mltcp_tools.lab.experiments.experiment import Experiment
from mltcp_tools.lab.experiments.matrix import find_matrix, load_matrix
from mltcp_tools.lab.experiments.reading import find_either, load_experiment
from mltcp_tools.lab.experiments.tasks import ClientTask, tasks_of
from mltcp_tools.lab.experiments.variants import ALONE, Variant
from mltcp_tools.lab.planning.network import PAYLOAD
from mltcp_tools.lab.simulator.modelled import modelled, with_mechanisms
from mltcp_tools.lab.simulator.schedules import ScheduledJob, iterations_of, simulate_bursts
from mltcp_tools.lab.simulator.variants import simulate_variant

_NETWORKS = ("circle", "leaf-spine", "rings", "pipeline", "experts", "two-way", "ring", "sharded")
EXPERIMENTS = (
    "two-jobs",
    "four-jobs",
    "six-jobs",
    "deep-queue",
    "unequal-jobs",
    "different-periods",
    "lockstep",
    "many-flows",
    "stragglers",
    "incompatible",
    "uneven-flows",
    "twins",
    "arrivals",
    "delay",
    "mechanisms",
    *_NETWORKS,
    "agreement/short-queue",
    "regimes/eight-flows",
)
"""Experiments by name, and scenarios as MATRIX/SCENARIO."""
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
        "leaf-spine",
        "rings",
        "pipeline",
        "two-way",
    )
)
"""Those that the rules were fitted on; the others were held out."""

_BOUND_LIKE = 0.03
"""A case is bound-like if the packet simulator is within so much of the bound."""


@dataclass(frozen=True)
class Case:
    """Mean iteration times of a variant in seconds: by packets, by flows, and the schedules' bound,
    None where there is none."""

    experiment: str
    variant: str
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
        """Return the error that it may have."""
        return 0.02 if self.bound_like else 0.05

    @property
    def bound_like(self) -> bool:
        """Return whether the jobs interleaved, or had the link to themselves."""
        if self.bound_s is None:
            return self.variant == ALONE
        return self.packets_s <= self.bound_s * (1 + _BOUND_LIKE)


@dataclass(frozen=True)
class Gain:
    """The share of reno's iteration time that a variant takes off: by packets, and by flows."""

    experiment: str
    variant: str
    rule: str
    packets: float
    flows: float

    @property
    def error(self) -> float:
        """By how much of reno's time the flow simulator's gain is off."""
        return self.flows - self.packets


def gains(cases: Iterable[Case]) -> list[Gain]:
    """Return the gains of variants with MLTCP's rule, where reno was run too."""
    cases = list(cases)
    reno = {case.experiment: case for case in cases if case.variant == "reno"}
    return [
        Gain(
            case.experiment,
            case.variant,
            case.rule,
            1 - case.packets_s / reno[case.experiment].packets_s,
            1 - case.flows_s / reno[case.experiment].flows_s,
        )
        for case in cases
        if case.experiment in reno and case.rule == MLTCP.name
    ]


def validate(
    names: Iterable[str] = EXPERIMENTS, said: Callable[[str], None] = lambda name: None
) -> list[Case]:
    """Every variant of the experiments that has a rule, and each job alone. `said` hears the
    names."""
    cases = []
    for name in names:
        said(name)
        experiment, _ = modelled(_load(name))
        alone = experiment.variant(ALONE)
        isolated_s = None if _one_link(experiment) else _alone_s(experiment)
        for variant in (alone, *experiment.variants):
            rule = rule_of(experiment, variant)
            if rule is not None:
                cases.append(_case(experiment, name, variant, rule, isolated_s))
    return cases


def _load(name: str) -> Experiment:
    matrix, _, scenario = name.partition("/")
    if scenario and not name.endswith(".yaml"):
        scenarios = load_matrix(find_matrix(matrix)).scenarios
        if scenario in scenarios:
            return scenarios[scenario]
    return load_experiment(find_either(name))


def _one_link(experiment: Experiment) -> bool:
    """Return whether jobs send one way over one link."""
    return not experiment.links and all(job.direction == "send" for job in experiment.jobs)


def _alone_s(experiment: Experiment) -> dict[str, float]:
    """Of each job, the mean iteration alone, in seconds, by packets."""
    kinds: dict[tuple[Any, ...], float] = {}
    times: dict[str, list[float]] = {}
    for repetition in range(1, experiment.repetitions + 1):
        for name, found in _packets(experiment, experiment.variant(ALONE), repetition):
            times.setdefault(name, []).extend(found)
    for name, found in times.items():
        kinds[experiment.job(name).demand()] = float(np.mean(found))
    return {job.name: kinds[job.demand()] for job in experiment.jobs}


def rule_of(experiment: Experiment, variant: Variant) -> Rule | None:
    """The rule that stands for the variant; None where it has parameters that none was fitted
    for."""
    if variant.name == ALONE:
        return FAIR
    if variant.cc == "reno":
        return RENO
    # MLTCP's rule is that of hosts that send and receive at once.
    if _one_link(experiment):
        return None
    if set(variant.parameters) - {"mechanisms"}:
        return None
    params = with_mechanisms(variant.params, variant.cc)
    return MLTCP if frozenset(params.mechanisms or ()) == {"increase", "yield"} else None


def _case(
    experiment: Experiment,
    name: str,
    variant: Variant,
    rule: Rule,
    isolated_s: Mapping[str, float] | None = None,
) -> Case:
    packets: list[tuple[str, list[float]]] = []
    flows: list[float] = []
    bound: list[float] = []
    for repetition in range(1, experiment.repetitions + 1):
        packets += _packets(experiment, variant, repetition)
        for tasks in tasks_of(experiment, variant, repetition):
            flows += flow_times(experiment, tasks, rule, repetition, isolated_s)
            if _one_link(experiment):
                bound += _bound_times(experiment, tasks)
    return Case(
        name,
        variant.name,
        rule.name,
        float(np.mean([each for _, found in packets for each in found])),
        float(np.mean(flows)),
        float(np.mean(bound)) if bound and variant.name != ALONE else None,
    )


def _packets(
    experiment: Experiment, variant: Variant, repetition: int
) -> list[tuple[str, list[float]]]:
    """Names of jobs, and their iteration times in seconds, by the packet simulator."""
    return [
        (task.name, [each["end"] - each["start"] for each in found["iterations"]])
        for task, found in simulate_variant(experiment, variant, repetition).documents
    ]


def _bound_times(experiment: Experiment, tasks: Sequence[ClientTask]) -> list[float]:
    rate = experiment.link.rate * PAYLOAD
    jobs = [
        ScheduledJob(
            str(number),
            task.spec.start_delay_s,
            list(compute_times(task.spec)),
            task.spec.bytes_per_iteration * 8 / rate + lag_s(experiment, task.spec),
            task.spec.bursts,
        )
        for number, task in enumerate(tasks)
    ]
    table = iterations_of(simulate_bursts("bound", jobs), jobs)
    return list(table["end_s"] - table["start_s"])


def show(cases: Sequence[Case]) -> None:
    """Print iteration times, gains over reno, and by how much these are off for each rule."""
    for case in cases:
        note = "" if abs(case.error) <= case.limit else f", beyond {case.limit:.0%}"
        print(
            f"{case.experiment}, {case.variant} ({case.rule}): packets {case.packets_s * 1e3:.1f}"
            f" ms,"
            f" flows {case.flows_s * 1e3:.1f} ms, {case.error:+.1%}{note}"
        )
    off: dict[tuple[str, str], list[float]] = {}
    for gain in gains(cases):
        note = "fitted" if gain.experiment in FITTED else "held out"
        off.setdefault((gain.rule, note), []).append(gain.error)
        print(
            f"{gain.experiment}, {gain.variant} over reno ({note}): packets {gain.packets:+.1%},"
            f" flows {gain.flows:+.1%}"
        )
    for (rule, note), errors in off.items():
        print(
            f"{rule}, {note}: gains are off by {np.sqrt(np.mean(np.square(errors))):.1%}"
            f" (root mean square of {len(errors)}), at most {max(map(abs, errors)):.1%}"
        )


if __name__ == "__main__":
    show(validate(sys.argv[1:] or EXPERIMENTS, lambda name: print(f"{name}…", file=sys.stderr)))
