# SPDX-License-Identifier: BSD-2-Clause
"""A model of how much jobs slow each other down on shared links.

It is fitted to measured slow-downs of random jobs at random places, and gives the schedulers a
reward for each placement at once, long before the jobs end.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from mltcp_tools.base.errors import UsageError
from mltcp_tools.clusters.engine.library import FlowJob, FlowSimulator
from mltcp_tools.clusters.models import Allocation, lag_s, phases_of
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
FEATURES = 4


def shares(topology: Topology, job: ClusterJob, allocation: Allocation, number: int) -> Shares:
    """Shares of the job at this place, alone; shape (directions,)."""
    found = np.zeros(len(topology.rates_bps))
    for phase in phases_of(job.model, topology, allocation, number):
        for link, times in phase.crossings.items():
            found[link] += phase.size * 8 * times / topology.rates_bps[link]
    return found / placed_s(job.model, allocation, topology)


class Interference(nn.Module):  # type: ignore[misc]
    """Predicts slow-downs. error, guess: mean absolute error on held-out samples, of the model and
    of the mean of the fitted ones."""

    error = guess = float("nan")

    def __init__(self) -> None:
        super().__init__()
        self._layers = nn.Sequential(nn.Linear(FEATURES, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, seen: torch.Tensor) -> torch.Tensor:
        """seen: shape (jobs, FEATURES), see `features`. Slow-downs, shape (jobs,), 1 or more;
        jobs that send nothing have 1."""
        return 1 + seen[:, 0] * nn.functional.softplus(self._layers(seen)).squeeze(-1)

    def slowdowns(self, rows: Sequence[Shares]) -> Shares:
        """The slow-down of each of the jobs that run together, given their shares."""
        if not rows:
            return np.zeros(0)
        with torch.no_grad():
            return np.asarray(self(features(rows)).numpy(), dtype=np.float64)


def features(rows: Sequence[Shares]) -> torch.Tensor:
    """Of each job, over the links that it uses: its own largest share, the largest and the mean
    share of the others, and the most jobs; shape (jobs, FEATURES)."""
    own = np.array(rows)
    used = own > 0
    others = np.where(used, own.sum(axis=0) - own, 0.0)
    jobs = np.where(used, used.sum(axis=0), 0)
    mean = others.sum(axis=1) / np.maximum(1, used.sum(axis=1))
    found = np.stack([own.max(axis=1), others.max(axis=1), mean, jobs.max(axis=1) / 4], axis=1)
    return torch.from_numpy(found).float()


def sample(workload: Workload, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
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
            phases_of(job.model, topology, placed, number),
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
    return features(rows), torch.tensor(slow).float()


def fit(workload: Workload, seed: int) -> Interference:
    """The model for jobs of this kind on this cluster; the same seed gives the same."""
    drawn = [sample(workload, seed * 1000 + each) for each in range(SAMPLES + HELD_OUT)]
    seen, slow = (torch.cat(each) for each in zip(*drawn[:SAMPLES], strict=True))
    model = Interference()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(400):
        loss = ((model(seen) - slow) ** 2).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    unseen, true = (torch.cat(each) for each in zip(*drawn[SAMPLES:], strict=True))
    with torch.no_grad():
        model.error = float((model(unseen) - true).abs().mean())
        model.guess = float((slow.mean() - true).abs().mean())
    return model
