# SPDX-License-Identifier: BSD-2-Clause
"""A scheduling policy's view of a cluster, and its decision."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from mltcp_tools.clusters.models import Allocation
from mltcp_tools.clusters.pairs import Pairs
from mltcp_tools.clusters.topology import Topology
from mltcp_tools.clusters.workload import ClusterJob

Ints = npt.NDArray[np.int64]
RESTART_S = 30.0
"""The time for which a job that starts again computes nothing."""


class Shared(dict[int, int]):
    """GPUs that another job, the host, has as well: each of the two computes more slowly."""

    def __init__(self, allocation: Allocation, host: int) -> None:
        super().__init__(allocation)
        self.host = host


@dataclass
class JobState:
    """A job that has arrived and isn't done.

    number: its place in the workload. allocation: server -> GPUs, empty while it waits. progress:
    share of its work that was done when it last started. started_s: when it did. service_s: GPU
    seconds until then. isolated_s: seconds of an iteration alone. partner: the job that has the
    same GPUs, if any.
    """

    number: int
    job: ClusterJob
    isolated_s: float
    allocation: Allocation = field(default_factory=dict)
    progress: float = 0.0
    started_s: float = 0.0
    service_s: float = 0.0
    first_start_s: float | None = None
    partner: int | None = None

    @property
    def running(self) -> bool:
        """Return whether it has GPUs."""
        return bool(self.allocation)

    def attained_s(self, now_s: float) -> float:
        """GPU seconds it has had."""
        return self.service_s + sum(self.allocation.values()) * (now_s - self.started_s)

    @property
    def isolated_total_s(self) -> float:
        """Return its time alone with what it asked for."""
        return self.isolated_s * self.job.iterations


@dataclass(frozen=True)
class View:
    """The cluster at one instant.

    free: of each server, GPUs that no job has; 0 where it is down. waiting, running: jobs by
    arrival. done_share: share of a job's work that is done by now. pairs: how jobs that share GPUs
    slow each other down, None where they may not share.
    """

    now_s: float
    topology: Topology
    free: Ints
    waiting: tuple[JobState, ...]
    running: tuple[JobState, ...]
    done_share: Callable[[JobState], float]
    pairs: Pairs | None = None

    def remaining_s(self, state: JobState) -> float:
        """Return the job's remaining time alone with what it asked for."""
        return (1 - self.done_share(state)) * state.isolated_total_s

    def remaining_gpu_s(self, state: JobState) -> float:
        """Return the GPU seconds that this takes."""
        return self.remaining_s(state) * state.job.gpus

    def free_without(self, states: Mapping[int, Allocation]) -> Ints:
        """Free GPUs if none of the running jobs ran, but those that are given."""
        free = self.free.copy()
        released: set[int | None] = set()
        for state in self.running:
            # What two jobs share gets free once, and when neither stays.
            if state.number in states or (
                state.partner is not None and (state.partner in states or state.partner in released)
            ):
                continue
            released.add(state.number)
            for server, gpus in state.allocation.items():
                free[server] += gpus
        return free


Decision = Mapping[int, Allocation]
"""Job number -> its GPUs, of all jobs that are to run; running ones left out are preempted. A guest
has its host's, as Shared."""


class Policy(Protocol):
    """A scheduler. round_s: it is asked that often besides arrivals and ends, None: not."""

    name: str
    round_s: float | None

    def decide(self, view: View) -> Decision:
        """Return the jobs that run from now on, and their places."""
        ...
