# SPDX-License-Identifier: BSD-2-Clause
"""The outcome of a workload: its jobs, and how the cluster was used."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Done:
    """A job that is done; seconds since the start. iteration_s: the mean of those it ran, slowdown:
    that over the iteration alone. work_gpu_s: GPU
    seconds that it takes alone. restarts: after preemption.
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
    work_gpu_s: float = 0.0

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
    """Outcome of a workload. used_gpu_s: GPU seconds that jobs held; events: of the simulator;
    seed: the workload's."""

    policy: str
    treatment: str
    jobs: list[Done] = field(default_factory=list)
    used_gpu_s: float = 0.0
    makespan_s: float = 0.0
    total_gpus: int = 0
    events: int = 0
    reclaimed: int = 0
    marked_gpu_s: float = 0.0
    seed: int = 1

    def fairness(self) -> npt.NDArray[np.float64]:
        """Finish-time fairness of each job (Themis, NSDI 2020): its completion time over what it
        would take alone with 1/n of the GPUs, for the n jobs that were there on average meanwhile.
        """
        arrivals = np.sort([job.arrival_s for job in self.jobs])
        ends = np.sort([job.end_s for job in self.jobs])
        both = np.unique(np.concatenate([arrivals, ends]))
        there = np.searchsorted(arrivals, both, "right") - np.searchsorted(ends, both, "right")
        spent = np.concatenate([[0.0], np.cumsum(there[:-1] * np.diff(both))])
        found = []
        for job in self.jobs:
            first, last = np.searchsorted(both, [job.arrival_s, job.end_s])
            others = (spent[last] - spent[first]) / max(job.completion_s, 1e-9)
            share = self.total_gpus / max(1.0, float(others))
            alone_s = job.work_gpu_s / job.gpus * max(1.0, job.gpus / share)
            found.append(job.completion_s / alone_s)
        return np.array(found)

    def summary(self) -> dict[str, float | str | int]:
        """Means and percentiles; times in seconds."""
        completion = np.array([job.completion_s for job in self.jobs])
        queueing = np.array([job.queueing_s for job in self.jobs])
        slow = np.array([job.slowdown for job in self.jobs])
        fair = self.fairness()
        return {
            "policy": self.policy,
            "treatment": self.treatment,
            "seed": self.seed,
            "jobs": len(self.jobs),
            "completion_mean_s": float(completion.mean()),
            "completion_p99_s": float(np.percentile(completion, 99)),
            "queueing_mean_s": float(queueing.mean()),
            "slowdown_mean": float(slow.mean()),
            "fairness_mean": float(fair.mean()),
            "fairness_worst": float(fair.max()),
            "makespan_s": self.makespan_s,
            "utilisation": self.used_gpu_s / (self.total_gpus * self.makespan_s),
            "restarts": sum(job.restarts for job in self.jobs),
        }
