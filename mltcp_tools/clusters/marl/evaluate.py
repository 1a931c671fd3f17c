# SPDX-License-Identifier: BSD-2-Clause
"""Trained agents and greedy sharing with the same predictions on workloads that were held out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mltcp_tools.clusters.interference import PairModel
from mltcp_tools.clusters.intervals import interval
from mltcp_tools.clusters.marl.agents import Agents, Marl
from mltcp_tools.clusters.marl.train import TREATMENT, Curriculum
from mltcp_tools.clusters.policies import policy
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
RIVAL = "predicted"
BESIDE = ("elastic", "fifo")
"""Nobody shares there: with jobs that grow, and as jobs come."""


def drawn(count: int, curriculum: Curriculum) -> list[Workload]:
    """So many workloads on the LARGE cluster, of seeds that training never uses."""
    large = replace(curriculum, topology=LARGE, jobs=JOBS)
    return [large.workload(HELD_OUT + n) for n in range(count)]


def evaluate(
    workloads: Sequence[Workload],
    trained: Mapping[int, tuple[Agents, PairModel]],
    said: Callable[[str], None] = lambda name: None,
) -> list[dict[str, Any]]:
    """Of each policy, the means over workloads: `completion_s` of jobs, `p99_s`, `unfairness`; and
    `below`: by which share completion is below that of RIVAL, with half of its 95 % interval over
    workloads."""

    def run(make: Callable[[Workload], Policy]) -> list[dict[str, Any]]:
        how = treatment(TREATMENT)
        return [ClusterSimulator(each, make(each), how).run().summary() for each in workloads]

    found: dict[str, list[dict[str, Any]]] = {}
    for name in (RIVAL, *BESIDE):
        said(name)
        found[name] = run(lambda _, name=name: policy(name))  # type: ignore[misc]
    for seed, (agents, known) in trained.items():
        found[f"marl, seed {seed}"] = run(lambda each, a=agents, k=known: Marl(a, k, each))  # type: ignore[misc]
    rows = []
    for name, runs in found.items():
        both = zip(runs, found[RIVAL], strict=True)
        below, half = interval([1 - one[TIME] / other[TIME] for one, other in both])
        means = {
            key: float(np.mean([each[field] for each in runs]))
            for key, field in (
                ("completion_s", TIME),
                ("p99_s", "completion_p99_s"),
                ("unfairness", "fairness_mean"),
            )
        }
        own = {"policy": name, "below": below, "below_half": None if half != half else half}
        rows.append(own | means)
    return sorted(rows, key=lambda row: row["completion_s"])
