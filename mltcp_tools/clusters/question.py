"""The question it is for: what do a scheduler and a congestion control gain, each and together?

Schedulers times treatments on three workloads that are drawn, and on one whose jobs never change
places, over some seeds. From their slow-downs (iteration
times over those alone) follows which share of Cassini's gain, over packing under reno, MLTCP has by
itself, and what each adds to the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mltcp_tools.clusters.intervals import interval
from mltcp_tools.clusters.sweep import Task

POLICIES = ("random", "packed", "network", "cassini")
TREATMENTS = (
    "reno",
    "mltcp",
    "turns",
    "mltcp+turns",
    "mlcc",
    "priority",
    "aggregation",
    "mltcp+aggregation",
)

_CLUSTER = (
    "cluster: {{servers: {servers}, gpus: 4, rate: {rate}, leaf: 4,"
    " oversubscription: {narrow}, spines: 2}}\n"
)
_WORKLOADS = {
    "heavy": (
        "25gbit",
        2,
        "jobs: {jobs}, load: 0.9, hours: {hours}, jitter: 3%, models: {{vgg16: 2, bert: 2, gpt2: 1,"
        " moe: 1}}, gpus: {{6: 1, 12: 2, 20: 2, 24: 1}}",
    ),
    "mixed": (
        "50gbit",
        2,
        "jobs: {jobs}, load: 0.9, hours: {hours}, jitter: 3%, models: {{resnet50: 2, vgg16: 2,"
        " bert: 1, transformer: 1, dlrm: 1}}, gpus: {{1: 1, 2: 1, 4: 2, 6: 2, 12: 2, 20: 2}}",
    ),
    "light": (
        "100gbit",
        1,
        "jobs: {jobs}, load: 0.9, hours: {hours}, jitter: 3%, models: {{resnet50: 2, cyclegan: 1,"
        " bert: 1}}, gpus: {{6: 1, 12: 2, 20: 1}}",
    ),
}
"""Name -> NICs, oversubscription, jobs: communication fills links, matters, or hardly does."""


@dataclass(frozen=True)
class Size:
    """How much: servers, jobs and their mean hours, and seeds."""

    servers: int
    jobs: int
    hours: float
    seeds: int


FULL = Size(servers=32, jobs=100, hours=0.2, seeds=5)
SMALL = Size(servers=16, jobs=30, hours=0.05, seeds=2)


def tasks(
    size: Size,
    policies: Sequence[str] = POLICIES,
    treatments: Sequence[str] = TREATMENTS,
) -> list[Task]:
    """All runs of the matrix."""
    found = _fixed(size, policies, treatments)
    for name, (rate, narrow, draws) in _WORKLOADS.items():
        for seed in range(1, size.seeds + 1):
            text = (
                _CLUSTER.format(servers=size.servers, rate=rate, narrow=narrow)
                + f"generate: {{{draws.format(jobs=size.jobs, hours=size.hours)}}}\n"
                + f"seed: {seed}\n"
            )
            found += [Task(name, text, p, t, seed) for p in policies for t in treatments]
    return found


_FIXED = ("vgg16", "bert", "resnet50")


def _fixed(size: Size, policies: Sequence[str], treatments: Sequence[str]) -> list[Task]:
    """Jobs that are all there from the start and fill the cluster: none takes another's place, so
    that treatments differ by nothing but what links give. Five for each seed, as they are quick."""
    count = size.servers * 4 // 20 // len(_FIXED)
    iterations = max(20, round(size.hours * 2000))
    lines = [
        f"  - {{name: {name}, model: {name}, gpus: 20, iterations: {iterations}, jitter: 3%,"
        f" count: {count}}}\n"
        for name in _FIXED
    ]
    return [
        Task(
            "fixed",
            _CLUSTER.format(servers=size.servers, rate="25gbit", narrow=2)
            + "jobs:\n"
            + "".join(lines)
            + f"seed: {seed}\n",
            each,
            how,
            seed,
        )
        for seed in range(1, 5 * size.seeds + 1)
        for each in policies
        for how in treatments
    ]


@dataclass(frozen=True)
class Cell:
    """A policy and a treatment on a workload: means over jobs and seeds."""

    workload: str
    policy: str
    treatment: str
    completion_s: float
    slowdown: float
    p99_slowdown: float


def cells(results: Sequence[Mapping[str, Any]]) -> list[Cell]:
    """The matrix's cells, in the order of the results."""
    pooled: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for each in results:
        pooled.setdefault((each["workload"], each["policy"], each["treatment"]), []).append(each)
    return [
        Cell(
            *key,
            float(np.mean([np.mean(each["completion_s"]) for each in runs])),
            float(np.mean([np.mean(each["slowdown"]) for each in runs])),
            float(np.percentile(np.concatenate([each["slowdown"] for each in runs]), 99)),
        )
        for key, runs in pooled.items()
    ]


@dataclass(frozen=True)
class Difference:
    """Between two columns' slow-downs on the same draws: `what` minus reno under the same policy,
    or minus reno under packing; the mean over seeds and half of its 95 % interval."""

    workload: str
    what: str
    mean: float
    half: float


def differences(results: Sequence[Mapping[str, Any]]) -> list[Difference]:
    """What MLTCP changes under each policy, and what Cassini does, paired by draw."""
    slow = {
        (each["workload"], each["policy"], each["treatment"], each["seed"]): float(
            np.mean(each["slowdown"])
        )
        for each in results
    }
    pairs = {
        f"{name}, mltcp": ((name, "mltcp"), (name, "reno"))
        for name in dict.fromkeys(each["policy"] for each in results)
    }
    pairs["cassini, turns"] = ("cassini", "turns"), ("packed", "reno")
    found = []
    for workload in dict.fromkeys(each["workload"] for each in results):
        seeds = sorted({seed for name, _, _, seed in slow if name == workload})
        for what, (one, other) in pairs.items():
            values = [slow[workload, *one, seed] - slow[workload, *other, seed] for seed in seeds]
            found.append(Difference(workload, what, *interval(values)))
    return found


@dataclass(frozen=True)
class Answer:
    """Of a workload: the excess of slow-down over 1 that each takes away, from 0, none of it, to 1.

    mltcp: under packing, instead of reno. placement: Cassini's placement under reno, instead of
    packing. turns: its shifts, under packing. cassini: both. all: all and MLTCP. share: MLTCP's
    gain over Cassini's, NaN where that has none.
    """

    workload: str
    excess: float
    mltcp: float
    placement: float
    turns: float
    cassini: float
    all: float
    network: float

    @property
    def share(self) -> float:
        """MLTCP's part of Cassini's gain."""
        return self.mltcp / self.cassini if self.cassini > 0.01 else float("nan")


def answers(found: Sequence[Cell]) -> list[Answer]:
    """What the matrix says, for each workload with the cells it takes."""
    slow = {(each.workload, each.policy, each.treatment): each.slowdown for each in found}
    given = []
    for workload in dict.fromkeys(each.workload for each in found):
        base = slow[workload, "packed", "reno"] - 1

        def gain(policy: str, how: str, workload: str = workload, base: float = base) -> float:
            return 1 - (slow[workload, policy, how] - 1) / base if base > 0 else 0.0

        given.append(
            Answer(
                workload,
                base,
                gain("packed", "mltcp"),
                gain("cassini", "reno"),
                gain("packed", "turns"),
                gain("cassini", "turns"),
                gain("cassini", "mltcp+turns"),
                gain("network", "mltcp"),
            )
        )
    return given
