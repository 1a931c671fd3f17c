# SPDX-License-Identifier: BSD-2-Clause
"""A model of how much jobs slow each other down on shared links.

It is fitted to measured slow-downs of random jobs at random places, and gives the schedulers a
reward for each placement at once, long before the jobs end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy.optimize import nnls

from mltcp_tools.base.errors import UsageError
from mltcp_tools.clusters.engine.library import FlowJob, FlowSimulator
from mltcp_tools.clusters.models import Allocation, iteration_of, lag_s
from mltcp_tools.clusters.policies.placing import fitting, shape
from mltcp_tools.clusters.rules import treatment
from mltcp_tools.clusters.topology import Topology
from mltcp_tools.clusters.workload import ClusterJob, Workload, placed_s

Shares = npt.NDArray[np.float64]
"""Of each direction of a link: the share of time for which a job alone keeps it busy."""
TREATMENT = "reno"
SAMPLES, HELD_OUT = 60, 20
"""Random placements of a whole cluster that the model is fitted to, and those that test it."""
ITERATIONS = 30
FEATURES = 2


def shares(topology: Topology, job: ClusterJob, allocation: Allocation, number: int) -> Shares:
    """Shares of the job at this place, alone; shape (directions,)."""
    found = np.zeros(len(topology.rates_bps))
    own = iteration_of(job.model, topology, allocation, number)
    for link, times in own.crossings.items():
        found[link] = own.size * 8 * times / topology.rates_bps[link]
    return found / placed_s(job.model, allocation, topology)


@dataclass(frozen=True)
class Interference:
    """Predicts slow-downs. weights: of the features. error, guess: mean absolute error on held-out
    samples, of the model and of the mean of the fitted ones."""

    weights: Shares = field(default_factory=lambda: np.zeros(FEATURES))
    error: float = float("nan")
    guess: float = float("nan")

    def slowdowns(self, rows: Sequence[Shares]) -> Shares:
        """The slow-down of each of the jobs that run together, given their shares: 1 or more, and 1
        for jobs that send nothing."""
        found = features(rows) @ self.weights if rows else np.zeros(0)
        return np.asarray(1 + found)


def features(rows: Sequence[Shares]) -> Shares:
    """Of each job, over the links that it uses: its own largest share, times the mean share of the
    others; and its square, times their largest share; shape (jobs, FEATURES)."""
    own = np.array(rows)
    used, largest = own > 0, own.max(axis=1)
    others = np.where(used, own.sum(axis=0) - own, 0.0)
    mean = others.sum(axis=1) / np.maximum(1, used.sum(axis=1))
    return np.stack([largest * mean, largest**2 * others.max(axis=1)], axis=1)


def sample(workload: Workload, seed: int) -> tuple[Shares, Shares]:
    """Random jobs of the workload at random places, run together until each has had ITERATIONS:
    their features, and their slow-downs beside being alone there."""
    draw = np.random.default_rng(seed)
    topology, rule = workload.topology, treatment(TREATMENT).rule
    engine = FlowSimulator(topology.rates_bps, rule, packets=topology.packets)
    free = topology.gpus_of.copy()
    rows, alone, numbers = [], [], []
    for number in draw.permutation(len(workload.jobs)).tolist():
        job = workload.jobs[number]
        placed = fitting(free, draw.permutation(topology.servers), shape(job, topology))
        if not placed:
            continue
        for server, gpus in placed.items():
            free[server] -= gpus
        rows.append(shares(topology, job, placed, number))
        alone.append(placed_s(job.model, placed, topology))
        flow = FlowJob(
            iteration_of(job.model, topology, placed, number),
            1_000_000,
            float(draw.uniform(0, alone[-1])),
            job.compute_rows(),
            lag_s=lag_s(topology, placed),
            seed=job.seed,
            flows=job.model.flows,
        )
        numbers.append(engine.add(flow))
    if not rows:
        raise UsageError("no job has a shape that the servers can hold.")
    while min(engine.stats(each).done for each in numbers) < ITERATIONS:
        engine.run(engine.now + ITERATIONS * max(alone))
    slow = [engine.stats(n).mean_s / lone for n, lone in zip(numbers, alone, strict=True)]
    return features(rows), np.array(slow)


def fit(workload: Workload, seed: int) -> Interference:
    """The model for jobs of this kind on this cluster, by least squares: more load slows more."""
    drawn = [sample(workload, seed * 1000 + each) for each in range(SAMPLES + HELD_OUT)]
    seen, slow = (np.concatenate(each) for each in zip(*drawn[:SAMPLES], strict=True))
    weights = nnls(seen, slow - 1)[0]
    unseen, true = (np.concatenate(each) for each in zip(*drawn[SAMPLES:], strict=True))
    off = [float(np.abs(each - true).mean()) for each in (1 + unseen @ weights, slow.mean())]
    return Interference(weights, *off)
