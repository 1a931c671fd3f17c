"""Trained agents, every rival, greedy sharing and an oracle on workloads that were held out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mltcp_tools.clusters.bound import least_mean_s
from mltcp_tools.clusters.interference import PairModel
from mltcp_tools.clusters.intervals import interval
from mltcp_tools.clusters.marl.agents import Agents, Marl
from mltcp_tools.clusters.marl.train import TREATMENT, Curriculum
from mltcp_tools.clusters.policies import POLICIES, policy
from mltcp_tools.clusters.policies.estimated import SUFFIX
from mltcp_tools.clusters.policies.oracle import WAYS, Oracle
from mltcp_tools.clusters.rules import treatment
from mltcp_tools.clusters.simulate import ClusterSimulator
from mltcp_tools.clusters.topology import regular
from mltcp_tools.clusters.view import Policy
from mltcp_tools.clusters.workload import Workload

HELD_OUT = 1_000_100
"""The seed of the first held-out draw: none of those on which the training was tuned."""
LARGE = regular(servers=16, gpus=4, leaf=4, oversubscription=4.0, spines=2, rate_bps=25e9)
"""The cluster of held-out workloads, larger than the one that agents are trained on."""
JOBS = 800
TIME = "completion_mean_s"
SHIPPED, ORACLE = "predicted", "oracle, in hindsight"
LEAST = {SHIPPED: "whoever decides, at most", "elastic": "whoever decides, nobody sharing, at most"}
"""The policies that are held against a bound: with shared GPUs, and without."""
RIVALS = tuple(name for name in POLICIES if name not in ("random", "replay"))


def drawn(count: int, curriculum: Curriculum) -> list[Workload]:
    """So many workloads on the LARGE cluster, of seeds that training never uses."""
    large = replace(curriculum, topology=LARGE, jobs=JOBS)
    return [large.workload(HELD_OUT + n) for n in range(count)]


def evaluate(
    workloads: Sequence[Workload],
    trained: Mapping[int, tuple[Agents, PairModel]],
    rivals: Sequence[str] = RIVALS,
    said: Callable[[str], None] = lambda name: None,
) -> list[dict[str, Any]]:
    """Of everyone, and of the bounds in LEAST, the means over workloads: `completion_s` of jobs,
    `estimated_s`, where lengths are estimated, `p99_s`, `unfairness`; and `below`: by which share
    completion is below that of the policy `against`, `predicted` for all but a bound, with known
    lengths; and half of its 95 % interval over workloads."""

    def run(make: Callable[[Workload], Policy]) -> list[dict[str, Any]]:
        how = treatment(TREATMENT)
        return [ClusterSimulator(each, make(each), how).run().summary() for each in workloads]

    found: dict[str, list[dict[str, Any]]] = {}
    for name in dict.fromkeys((SHIPPED, *rivals)):
        for each in (name, name + SUFFIX) if POLICIES[name].lengths else (name,):
            said(each)
            found[each] = run(lambda _, name=each: policy(name))  # type: ignore[misc]
    for seed, (agents, known) in trained.items():
        found[f"marl, seed {seed}"] = run(lambda each, a=agents, k=known: Marl(a, k, each))  # type: ignore[misc]
    said(ORACLE)
    ways = [run(lambda _, way=way: Oracle(*way)) for way in WAYS]  # type: ignore[misc]
    found[ORACLE] = [min(each, key=lambda one: one[TIME]) for each in zip(*ways, strict=True)]
    against = dict.fromkeys(found, SHIPPED)
    for name, bound in LEAST.items():
        if name in found:
            said(bound)
            found[bound] = [
                {TIME: _least_s(each if name == SHIPPED else replace(each, pairs=None), one)}
                for each, one in zip(workloads, found[name], strict=True)
            ]
            against[bound] = name
    rows = []
    for name, runs in found.items():
        if not name.endswith(SUFFIX):
            both = zip(runs, found[against[name]], strict=True)
            below, half = interval([1 - one[TIME] / other[TIME] for one, other in both])
            rows.append(
                {
                    "policy": name,
                    "completion_s": _mean(runs, TIME),
                    "estimated_s": _mean(found.get(name + SUFFIX, ()), TIME),
                    "p99_s": _mean(runs, "completion_p99_s"),
                    "unfairness": _mean(runs, "fairness_mean"),
                    "against": against[name],
                    "below": below,
                    "below_half": None if half != half else half,
                }
            )
    return sorted(rows, key=lambda row: row["completion_s"])


def _least_s(workload: Workload, one: Mapping[str, Any]) -> float:
    return least_mean_s(workload, 2 * float(one["makespan_s"]))


def _mean(runs: Sequence[Mapping[str, Any]], field: str) -> float | None:
    known = [each[field] for each in runs if field in each]
    return float(np.mean(known)) if known else None
