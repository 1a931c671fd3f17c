# SPDX-License-Identifier: BSD-2-Clause
"""A scheduling policy's view of a cluster, and its decision."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from mltcp_tools.clusters.models import Allocation
from mltcp_tools.clusters.topology import Topology
from mltcp_tools.clusters.workload import ClusterJob

Ints = npt.NDArray[np.int64]
RESTART_S = 30.0
"""The time for which a job that starts again computes nothing."""


@dataclass
class JobState:
    """A job that has arrived and isn't done.

    number: its place in the workload. allocation: server -> GPUs, empty while it waits. progress:
    share of its work that was done when it last started. started_s: when it did.
    isolated_s: seconds of an iteration alone.
    """

    number: int
    job: ClusterJob
    isolated_s: float
    allocation: Allocation = field(default_factory=dict)
    progress: float = 0.0
    started_s: float = 0.0
    first_start_s: float | None = None


@dataclass(frozen=True)
class View:
    """The cluster at one instant.

    free: of each server, GPUs that no job has; 0 where it is down. waiting, running: jobs by
    arrival. done_share: share of a job's work that is done by now.
    """

    now_s: float
    topology: Topology
    free: Ints
    waiting: tuple[JobState, ...]
    running: tuple[JobState, ...]
    done_share: Callable[[JobState], float]

    def remaining_s(self, state: JobState) -> float:
        """Return the job's remaining time alone with what it asked for."""
        return (1 - self.done_share(state)) * (state.isolated_s * state.job.iterations)

    def free_without(self, states: Mapping[int, Allocation]) -> Ints:
        """Free GPUs if none of the running jobs ran, but those that are given."""
        free = self.free.copy()
        for state in self.running:
            if state.number not in states:
                for server, gpus in state.allocation.items():
                    free[server] += gpus
        return free


Decision = Mapping[int, Allocation]
"""Job number -> its GPUs, of all jobs that are to run; running ones left out are preempted."""


class Policy(Protocol):
    """A scheduler. round_s: it is asked that often besides arrivals and ends, None: not."""

    name: str
    round_s: float | None

    def decide(self, view: View) -> Decision:
        """Return the jobs that run from now on, and their places."""
        ...
