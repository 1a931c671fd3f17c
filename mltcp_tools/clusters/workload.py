# SPDX-License-Identifier: BSD-2-Clause
"""The work of a cluster: jobs with their arrivals, listed or drawn, and their iterations alone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from mltcp_tools.base.errors import UsageError
from mltcp_tools.clusters.models import MODELS, Model, iteration_of, lag_s
from mltcp_tools.clusters.topology import Topology

SEEDS = 1_000_003
"""A workload's seed is multiplied by this, so that no two of its jobs' seeds are another's."""
_ROWS = 64
"""Iterations after which a job's jitter repeats."""


@dataclass(frozen=True)
class ClusterJob:
    """A training job.

    iterations: with `gpus` GPUs; with others it needs fewer or more. jitter: standard deviation of
    its compute times as a share of them. Of a job that was observed: start_s, when it started;
    took_s, how long it ran; placement, its GPUs by server; guessed, that its iterations follow from
    how long it ran.
    """

    name: str
    model: Model
    gpus: int
    iterations: int
    arrival_s: float = 0.0
    jitter: float = 0.0
    seed: int = 1
    start_s: float | None = None
    took_s: float | None = None
    placement: tuple[tuple[int, int], ...] = ()
    guessed: bool = False

    def compute_rows(self) -> npt.NDArray[np.float64] | None:
        """Seconds of computing of `_ROWS` iterations; None without jitter."""
        if not self.jitter:
            return None
        draw = np.random.default_rng(self.seed)
        factors = np.maximum(0.05, 1 + self.jitter * draw.standard_normal(_ROWS))
        return np.asarray(factors * self.model.compute_s)


@dataclass(frozen=True)
class Workload:
    """Jobs in the order in which they arrive, and the cluster that they come to.

    fitted: models whose computing time nobody gave, and follows from observed iterations. inputs:
    sentences on where it is from. origin_s: time 0 in an observed cluster's own time. assumed: what
    nobody said: topology, uplink, queue or iteration. parts: number of jobs on parts of GPUs,
    and GPU hours of those and of runs before evictions, which aren't simulated.
    """

    topology: Topology
    jobs: tuple[ClusterJob, ...]
    seed: int = 1
    fitted: frozenset[str] = frozenset()
    inputs: tuple[str, ...] = ()
    origin_s: float = 0.0
    assumed: tuple[str, ...] = ()
    parts: tuple[int, float] = (0, 0.0)

    def __post_init__(self) -> None:
        if not self.jobs:
            raise UsageError("the workload has no job.")
        for job in self.jobs:
            if not 1 <= job.gpus <= self.topology.total_gpus:
                raise UsageError(
                    f"job {job.name} asks for {job.gpus} GPUs, and the cluster has"
                    f" {self.topology.total_gpus}."
                )

    @property
    def observed(self) -> bool:
        """Return whether it is known of any job how long it ran."""
        return any(job.took_s is not None for job in self.jobs)

    def drawn(self, seed: int) -> Workload:
        """The same jobs with paths and random variation of that seed."""
        jobs = (replace(job, seed=seed * SEEDS + n) for n, job in enumerate(self.jobs))
        topology = replace(self.topology, seed=seed)
        return replace(self, topology=topology, jobs=tuple(jobs), seed=seed)

    def shorter(self, factor: float) -> Workload:
        """The same with jobs, and the times between them, shorter by the factor."""
        jobs = []
        for job in self.jobs:
            count = max(1, round(job.iterations / factor))
            jobs.append(replace(job, arrival_s=job.arrival_s / factor, iterations=count))
        return replace(self, jobs=tuple(jobs))


def servers_of(job: ClusterJob, gpus: int) -> int:
    """The number of servers of a job, the fewest of so many GPUs where its place isn't known."""
    return len(job.placement) or -(-job.gpus // gpus)


def computing_s(job: ClusterJob) -> float:
    """Seconds for which a job computes."""
    return job.iterations * job.model.compute_s


@lru_cache(maxsize=4096)
def alone_s(model: Model, gpus: int, topology: Topology) -> float:
    """Seconds of an iteration of the model on so many GPUs of the first servers, alone."""
    return placed_s(model, first_servers(gpus, topology), topology)


def placed_s(model: Model, allocation: Mapping[int, int], topology: Topology) -> float:
    """Seconds of an iteration of the model on these GPUs, alone."""
    return model.compute_s + sending_s(model, allocation, topology)


def sending_s(model: Model, allocation: Mapping[int, int], topology: Topology) -> float:
    """Seconds of an iteration in which the model sends, alone on these GPUs."""
    own = iteration_of(model, topology, allocation, 0)
    if not own.crossings:
        return 0.0
    narrowest = max(times / topology.rates_bps[link] for link, times in own.crossings.items())
    return lag_s(topology, allocation) + own.size * 8 * narrowest


def first_servers(gpus: int, topology: Topology) -> dict[int, int]:
    """So many GPUs of the first servers."""
    return take(topology.gpus_of, range(topology.servers), gpus)


def take(free: npt.NDArray[np.int64], servers: Iterable[int], gpus: int) -> dict[int, int]:
    """So many GPUs of the servers in this order."""
    taken: dict[int, int] = {}
    for server in servers:
        if gpus <= 0:
            break
        have = min(int(free[server]), gpus)
        if have > 0:
            taken[int(server)] = have
            gpus -= have
    return taken


@dataclass(frozen=True)
class Generated:
    """The jobs to draw; see the module. models, gpus: what to draw from, by weight."""

    jobs: int = 100
    load: float = 0.7
    models: Mapping[str, float] = field(
        default_factory=lambda: dict.fromkeys(("resnet50", "vgg16", "bert", "gpt2"), 1.0)
    )
    gpus: Mapping[int, float] = field(default_factory=lambda: {8: 4.0, 16: 3.0, 32: 2.0, 64: 1.0})
    hours: float = 1.0
    jitter: float = 0.0


def generate(
    topology: Topology, draws: Generated, seed: int, models: Mapping[str, Model] = MODELS
) -> tuple[ClusterJob, ...]:
    """Jobs that arrive as a Poisson process and whose lengths are log-normal (sigma 1)."""
    for name in draws.models:
        require_model(name, models)
    generator = np.random.default_rng(seed)
    sizes = {gpus: each for gpus, each in draws.gpus.items() if gpus <= topology.total_gpus}
    if not sizes:
        raise UsageError(f"no job fits the cluster's {topology.total_gpus} GPUs.")
    names = generator.choice(list(draws.models), draws.jobs, p=_shares(draws.models))
    gpus = generator.choice(list(sizes), draws.jobs, p=_shares(sizes))
    lengths_s = draws.hours * 3600 * np.exp(generator.standard_normal(draws.jobs) - 0.5)
    mean_work = float(np.mean(gpus * lengths_s))
    gap_s = mean_work / (draws.load * topology.total_gpus)
    arrivals = np.cumsum(generator.exponential(gap_s, draws.jobs))
    jobs = []
    for number in range(draws.jobs):
        model = models[str(names[number])]
        job = ClusterJob(
            f"{model.name}-{number + 1}",
            model,
            int(gpus[number]),
            1,
            round(float(arrivals[number]), 6),
            draws.jitter,
            seed=seed * SEEDS + number,
        )
        count = round(float(lengths_s[number]) / alone_s(model, job.gpus, topology))
        jobs.append(replace(job, iterations=max(1, count)))
    return tuple(jobs)


def _shares(weights: Mapping[str, float] | Mapping[int, float]) -> list[float]:
    total = sum(weights.values())
    if not (math.isfinite(total) and total > 0 and min(weights.values()) >= 0):
        raise UsageError("weights must be 0 or more, and one of them above 0.")
    return [each / total for each in weights.values()]


def require_model(name: str, models: Mapping[str, Model]) -> Model:
    """The model of that name, or a UsageError that lists them."""
    if name not in models:
        raise UsageError(f"there is no model {name!r}; there are {', '.join(sorted(models))}.")
    return models[name]
