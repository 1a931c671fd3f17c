# SPDX-License-Identifier: BSD-2-Clause
"""The outcome of a workload: its jobs, and how the cluster was used; intervals of means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Done:
    """A job that is done; seconds since the start. iteration_s: the mean of those it ran, slowdown:
    that over the iteration alone. restarts: after preemption. batch, learning_rate: means of its
    iterations', in those that it asked for.
    """

    name: str
    model: str
    gpus: int
    arrival_s: float
    start_s: float
    end_s: float
    running_s: float
    iteration_s: float
    slowdown: float
    restarts: int
    batch: float = 1.0
    learning_rate: float = 1.0

    @property
    def completion_s(self) -> float:
        """From arrival to end."""
        return self.end_s - self.arrival_s

    @property
    def queueing_s(self) -> float:
        """Of that, the time without GPUs."""
        return self.completion_s - self.running_s


@dataclass
class Outcome:
    """Outcome of a workload. seed: the workload's; used_gpu_s: GPU seconds that jobs held."""

    policy: str
    treatment: str
    seed: int = 1
    total_gpus: int = 0
    jobs: list[Done] = field(default_factory=list)
    used_gpu_s: float = 0.0
    makespan_s: float = 0.0

    def summary(self) -> dict[str, Any]:
        """Means and percentiles; times in seconds."""
        completion_s = [job.completion_s for job in self.jobs]
        return {
            "policy": self.policy,
            "treatment": self.treatment,
            "seed": self.seed,
            "jobs": len(self.jobs),
            "completion_mean_s": float(np.mean(completion_s)),
            "completion_p99_s": float(np.percentile(completion_s, 99)),
            "queueing_mean_s": float(np.mean([job.queueing_s for job in self.jobs])),
            "slowdown_mean": float(np.mean([job.slowdown for job in self.jobs])),
            "makespan_s": self.makespan_s,
            "utilisation": self.used_gpu_s / (self.total_gpus * self.makespan_s),
            "restarts": sum(job.restarts for job in self.jobs),
        }


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The mean, and half of its 95 % interval by Student's t; NaN with fewer than two values."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return mean, float("nan")
    # scipy takes a while to import, and most commands need none of it.
    from scipy.stats import t

    spread = float(np.std(values, ddof=1)) / len(values) ** 0.5
    return mean, float(t.ppf(0.975, len(values) - 1)) * spread
