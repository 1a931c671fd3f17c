"""The question it is for: what do a scheduler and a congestion control gain, each and together?

Schedulers times treatments, over some seeds: on three workloads that are drawn, on one in which
jobs wait, and on one whose jobs never change places. Slow-downs (iteration times over those alone)
say how much of what packing under reno leaves to gain MLTCP and Cassini take away. Completion times
say that of elastic schedulers as well, whose jobs have other numbers of GPUs than they ask for, and
share them: which share of their gain MLTCP has by itself, and what each adds to the other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mltcp_tools.clusters import rules
from mltcp_tools.clusters.intervals import interval
from mltcp_tools.clusters.pairs import Pairs
from mltcp_tools.clusters.policies import known
from mltcp_tools.clusters.sweep import Task
from mltcp_tools.errors import UsageError
from mltcp_tools.lab.experiments.treatments import TurnsSettings

POLICIES = ("random", "packed", "network", "cassini", "elastic", "predicted")
TREATMENTS = tuple(name for name in rules.TREATMENTS if name != rules.FAIR.name)
_TURNS = TurnsSettings.name

_LIKE = ("transformer-64", "recommendation-512", "resnet50-64", "resnet18-128")
"""Models by the names that measured pairs have for them; they compute and send as the ones without
a batch size do, so that jobs are the same whoever schedules them."""


@dataclass(frozen=True)
class _Mix:
    """NICs, oversubscription of leaves, and how jobs are drawn; many: so many times as many."""

    rate: str
    narrow: int
    models: Mapping[str, float]
    gpus: Mapping[int, float]
    many: int = 1
    load: float = 0.9

    def text(self, size: Size, seed: int) -> str:
        """As YAML."""
        draws = {
            "jobs": size.jobs * self.many,
            "load": self.load,
            "hours": size.hours,
            "jitter": "3%",
            "models": self.models,
            "gpus": self.gpus,
        }
        like = {name: {"like": name.rpartition("-")[0]} for name in _LIKE}
        sections = {"models": like, "generate": draws, "seed": seed}
        return _cluster(size, self.rate, self.narrow) + _yaml(sections)


_MIXES = {
    "heavy": _Mix(
        "25gbit",
        2,
        {"vgg16": 2, "bert": 2, "gpt2": 1, "moe": 1, "transformer-64": 3, "recommendation-512": 3},
        {6: 1, 12: 2, 20: 2, 24: 1},
    ),
    "mixed": _Mix(
        "50gbit",
        2,
        {"resnet50-64": 2, "vgg16": 2, "bert": 1, "transformer-64": 1, "dlrm": 1},
        {1: 1, 2: 1, 4: 2, 6: 2, 12: 2, 20: 2},
    ),
    "light": _Mix("100gbit", 1, {"resnet50-64": 2, "cyclegan": 1, "bert": 1}, {6: 1, 12: 2, 20: 1}),
    "crowded": _Mix(
        "50gbit",
        2,
        {
            "resnet50-64": 1,
            "resnet18-128": 1,
            "transformer-64": 1,
            "recommendation-512": 1,
            "cyclegan": 1,
        },
        {1: 2, 2: 1, 4: 2, 6: 2, 12: 2, 20: 1},
        many=2,
        load=4.0,
    ),
}
"""Communication fills links, matters, or hardly does; and jobs of measured models queue up."""
WORKLOADS = ("fixed", *_MIXES)


@dataclass(frozen=True)
class Size:
    """The size of a comparison: servers, jobs and their mean hours, draws."""

    servers: int
    jobs: int
    hours: float
    seeds: int


FULL = Size(servers=32, jobs=100, hours=0.2, seeds=5)
SMALL = Size(servers=16, jobs=30, hours=0.05, seeds=2)


def _yaml(sections: Mapping[str, Any]) -> str:
    # What JSON writes is YAML, too.
    return "".join(f"{name}: {json.dumps(each)}\n" for name, each in sections.items())


def _cluster(size: Size, rate: str, narrow: int) -> str:
    cluster = {"servers": size.servers, "gpus": 4, "rate": rate, "leaf": 4}
    return _yaml({"cluster": cluster | {"oversubscription": narrow, "spines": 2}})


_FIXED = ("vgg16", "bert", "resnet50")


def _fixed(size: Size, seed: int) -> str:
    """Jobs that are all there from the start and fill the cluster: none takes another's place, so
    that treatments differ by nothing but what links give."""
    count = size.servers * 4 // 20 // len(_FIXED)
    iterations = max(20, round(size.hours * 2000))
    each = {"gpus": 20, "iterations": iterations, "jitter": "3%", "count": count}
    jobs = [{"name": name, "model": name} | each for name in _FIXED]
    return _cluster(size, "25gbit", 2) + _yaml({"jobs": jobs, "seed": seed})


@dataclass(frozen=True)
class Missing:
    """A policy that can't be had on a workload, whatever the treatment, and why."""

    workload: str
    policy: str
    reason: str


def missing(
    policies: Sequence[str] = POLICIES,
    pairs: Pairs | None = None,
    workloads: Sequence[str] = WORKLOADS,
) -> list[Missing]:
    """Return what of the matrix can't be. pairs: who may share GPUs, None: nobody.

    Raises UsageError for a workload that there isn't.
    """
    for name in workloads:
        if name not in WORKLOADS:
            raise UsageError(f"there is no workload {name!r}; there are {', '.join(WORKLOADS)}.")
    found = []
    for policy in policies:
        for workload in workloads:
            if known(policy).shares and pairs is None:
                reason = "nobody may share GPUs without measured pairs (--pairs)"
            elif known(policy).resizes and workload == "fixed":
                reason = "its jobs keep the GPUs that they ask for, and this gives them others"
            elif known(policy).shares and not _measured(workload, pairs):
                reason = "no two of its models are among the measured pairs"
            else:
                continue
            found.append(Missing(workload, policy, reason))
    return found


def _measured(workload: str, pairs: Pairs | None) -> bool:
    names = _MIXES[workload].models
    return pairs is not None and any(one in names and two in names for one, two in pairs.slow)


def tasks(
    size: Size,
    policies: Sequence[str] = POLICIES,
    treatments: Sequence[str] = TREATMENTS,
    pairs: Pairs | None = None,
    workloads: Sequence[str] = WORKLOADS,
) -> list[Task]:
    """All runs of the matrix that can be. Raises UsageError as `missing` does."""
    impossible = {(each.workload, each.policy) for each in missing(policies, pairs, workloads)}
    found = []
    for workload in workloads:
        for seed in range(1, size.seeds + 1):
            text = _fixed(size, seed) if workload == "fixed" else _MIXES[workload].text(size, seed)
            for policy in policies:
                if (workload, policy) in impossible:
                    continue
                task = Task(workload, text, policy, "", seed)
                if known(policy).shares:
                    task = replace(task, pairs=pairs)
                found += [replace(task, treatment=how) for how in treatments]
    return found


@dataclass(frozen=True)
class Cell:
    """A policy and a treatment on a workload: means over jobs and seeds.

    Slow-downs are None where jobs have other numbers of GPUs than they ask for: their iterations
    are others than those alone.
    """

    workload: str
    policy: str
    treatment: str
    completion_s: float
    slowdown: float | None
    p99_slowdown: float | None


def cells(results: Sequence[Mapping[str, Any]]) -> list[Cell]:
    """The matrix's cells, in the order of the results."""
    pooled: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for each in results:
        pooled.setdefault((each["workload"], each["policy"], each["treatment"]), []).append(each)
    found = []
    for key, runs in pooled.items():
        slow = p99 = None
        if not known(key[1]).resizes:
            slow = float(np.mean([np.mean(each["slowdown"]) for each in runs]))
            p99 = float(np.percentile(np.concatenate([each["slowdown"] for each in runs]), 99))
        completion_s = float(np.mean([np.mean(each["completion_s"]) for each in runs]))
        found.append(Cell(*key, completion_s, slow, p99))
    return found


@dataclass(frozen=True)
class Difference:
    """Between two columns on the same draws, or a share of what one has: the mean, and half of its
    95 % interval over seeds, None with one seed."""

    workload: str
    what: str
    mean: float
    half: float | None


Column = tuple[str, str]
"""A policy and a treatment."""


def _compared(
    results: Sequence[Mapping[str, Any]],
    measure: str,
    pairs: Mapping[str, tuple[Column, Column]],
    relative: bool,
) -> list[Difference]:
    """One column minus the other, or which share of the other it takes off, draw by draw; where one
    of them is missing, nothing."""
    found = {
        (each["workload"], each["policy"], each["treatment"], each["seed"]): float(
            np.mean(each[measure])
        )
        for each in results
    }
    differences = []
    for workload in dict.fromkeys(each["workload"] for each in results):
        seeds = sorted({seed for name, _, _, seed in found if name == workload})
        for what, (one, other) in pairs.items():
            both = [
                (found[workload, *one, seed], found[workload, *other, seed])
                for seed in seeds
                if {(workload, *one, seed), (workload, *other, seed)} <= found.keys()
            ]
            if both:
                mean, half = interval([1 - a / b if relative else a - b for a, b in both])
                differences.append(Difference(workload, what, mean, None if half != half else half))
    return differences


def differences(results: Sequence[Mapping[str, Any]]) -> list[Difference]:
    """Of slow-downs: what MLTCP changes under each policy, and what Cassini does."""
    slowed = [each for each in results if not known(each["policy"]).resizes]
    pairs = {
        f"{name}, mltcp": ((name, "mltcp"), (name, "reno"))
        for name in dict.fromkeys(each["policy"] for each in slowed)
    }
    pairs[f"cassini, {_TURNS}"] = ("cassini", _TURNS), ("packed", "reno")
    return _compared(slowed, "slowdown", pairs, relative=False)


ALONE, CASSINI, PLAN, SHARED, ALL = (
    "mltcp",
    "cassini with turns",
    "elastic alone",
    "sharing",
    "sharing and mltcp",
)
_BASE = ("packed", "reno")
_CASSINI = ("cassini", _TURNS)
SAVED: Mapping[str, tuple[Column, Column]] = {
    ALONE: (("packed", "mltcp"), _BASE),
    CASSINI: (_CASSINI, _BASE),
    PLAN: (("elastic", "reno"), _BASE),
    SHARED: (("predicted", "reno"), _BASE),
    ALL: (("predicted", "mltcp"), _BASE),
}
"""Name -> a column, and the one whose completion times it shortens: packing under reno."""
ADDED: Mapping[str, tuple[Column, Column]] = {
    "mltcp to cassini with turns": (("cassini", f"mltcp+{_TURNS}"), _CASSINI),
    "cassini with turns to mltcp": (("cassini", f"mltcp+{_TURNS}"), ("packed", "mltcp")),
    "mltcp to sharing": (("predicted", "mltcp"), ("predicted", "reno")),
    "aggregation to sharing": (("predicted", "aggregation"), ("predicted", "reno")),
    "sharing to mltcp": (("predicted", "mltcp"), ("packed", "mltcp")),
    "sharing to elastic": (("predicted", "reno"), ("elastic", "reno")),
    "mltcp to random places": (("random", "mltcp"), ("random", "reno")),
    "aggregation to packing": (("packed", "aggregation"), _BASE),
}
"""The part that one adds to the other, in the same way."""


def savings(results: Sequence[Mapping[str, Any]]) -> list[Difference]:
    """Of completion times: the shares that are SAVED and ADDED."""
    return _compared(results, "completion_s", {**SAVED, **ADDED}, relative=True)


def free(saved: Sequence[Difference], workload: str, of: str) -> Difference | None:
    """Return which share of what `of` saves MLTCP saves by itself, at no scheduler's cost; None
    where `of` is missing or its gain can't be told from none. The interval is MLTCP's.
    """
    found = {each.what: each for each in saved if each.workload == workload}
    alone, other = found.get(ALONE), found.get(of)
    if alone is None or other is None or other.mean <= (other.half or 0.0):
        return None
    half = None if alone.half is None else alone.half / other.mean
    return Difference(workload, f"mltcp's part of {of}", alone.mean / other.mean, half)
