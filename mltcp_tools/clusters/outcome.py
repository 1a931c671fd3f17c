# SPDX-License-Identifier: BSD-2-Clause
"""The outcome of a workload: its jobs, and how the cluster was used."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd


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
    """Outcome of a workload. used_gpu_s: GPU seconds that jobs held; seed: the
    workload's."""

    policy: str
    treatment: str
    jobs: list[Done] = field(default_factory=list)
    used_gpu_s: float = 0.0
    makespan_s: float = 0.0
    total_gpus: int = 0
    seed: int = 1

    def summary(self) -> dict[str, float | str | int]:
        """Means and percentiles; times in seconds."""
        completion = np.array([job.completion_s for job in self.jobs])
        queueing = np.array([job.queueing_s for job in self.jobs])
        slow = np.array([job.slowdown for job in self.jobs])
        return {
            "policy": self.policy,
            "treatment": self.treatment,
            "seed": self.seed,
            "jobs": len(self.jobs),
            "completion_mean_s": float(completion.mean()),
            "completion_p99_s": float(np.percentile(completion, 99)),
            "queueing_mean_s": float(queueing.mean()),
            "slowdown_mean": float(slow.mean()),
            "makespan_s": self.makespan_s,
            "utilisation": self.used_gpu_s / (self.total_gpus * self.makespan_s),
            "restarts": sum(job.restarts for job in self.jobs),
        }


def write_report(folder: Path, outcomes: Sequence[Outcome]) -> None:
    """Write jobs.csv and summary.json."""
    jobs_table(outcomes).to_csv(folder / "jobs.csv", index=False)
    document = {"schema": "mltcp-cluster/1", "runs": [each.summary() for each in outcomes]}
    (folder / "summary.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def jobs_table(outcomes: Sequence[Outcome]) -> pd.DataFrame:
    """A row per job of each run; times in seconds since the start."""
    rows = [
        {"policy": outcome.policy, "treatment": outcome.treatment, "seed": outcome.seed}
        | vars(job)
        | {"completion_s": job.completion_s, "queueing_s": job.queueing_s}
        for outcome in outcomes
        for job in outcome.jobs
    ]
    return pd.DataFrame(rows)
