"""The least mean completion time that any scheduler can have: a relaxation over all that one
decides, sizes, places, pre-emption and sharing, with lengths, arrivals and pairs known.

A linear program over intervals of time (as in Phillips, Stein and Wein 1998): GPUs hold a job or a
measured pair each, in any fractions; nobody restarts or contends, and places cost nothing. A job
has its own number of GPUs, or grows up to its best size, where all further GPUs bring as much as
the next ones do. Work of an interval counts as done at its begin. A job completes later than the
mean instant of its work, at least by half of the time that this takes at those speeds; that is
convex in the share that is done by growing, and its tangents are in the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mltcp_tools.clusters.pairs import Pairs
from mltcp_tools.clusters.policies.marginal import efficiency
from mltcp_tools.clusters.topology import Topology
from mltcp_tools.clusters.workload import ClusterJob, Workload, alone_s, lone_iteration_s
from mltcp_tools.errors import MltcpError

TANGENTS = (0.0, 0.15, 0.3, 0.5, 0.7, 1.0)


@dataclass(frozen=True)
class Grown:
    """The best that a job can do alone. lone_s: seconds with its own GPUs. fastest: how many times
    as fast it is at most, with more. slope: what one of those brings at most, over one of its
    own."""

    lone_s: float
    fastest: float
    slope: float


def grown(job: ClusterJob, topology: Topology) -> Grown:
    """The job's speeds, each number of GPUs in the best places."""
    lone_s = lone_iteration_s(job, topology)
    speeds = {job.gpus: 1.0}
    for gpus in range(1, topology.total_gpus + 1):
        factor = gpus / job.gpus
        iteration_s = alone_s(job.model, gpus, topology)
        speeds[gpus] = max(
            speeds.get(gpus, 0.0), factor * efficiency(factor) * lone_s / iteration_s
        )
    fewer = max(speed * job.gpus / gpus for gpus, speed in speeds.items() if gpus <= job.gpus)
    slope = max(
        (
            (speed - 1) * job.gpus / (gpus - job.gpus)
            for gpus, speed in speeds.items()
            if gpus > job.gpus
        ),
        default=0.0,
    )
    # Where fewer GPUs do more each, its own are taken to do as much.
    return Grown(
        lone_s * job.iterations / fewer, max(speeds.values()) / fewer, max(0.0, slope) / fewer
    )


def least_mean_s(workload: Workload, until_s: float, intervals: int = 60) -> float:
    """A lower bound on the mean completion time of the workload's jobs in seconds, whoever
    schedules them. until_s: more than any sensible schedule takes for all of them."""
    program = _Program()
    at = until_s * np.linspace(0, 1, intervals + 1) ** 1.5
    names = sorted({job.model.name for job in workload.jobs})
    holders = _holders(names, workload.pairs)
    capacity = [program.row(float(workload.topology.total_gpus)) for _ in range(intervals)]
    pools = [{name: program.row(0.0) for name in names} for _ in range(intervals)]
    for t in range(intervals):
        for speeds in holders:
            held = program.variable(0.0)
            program.put(capacity[t], held, 1.0)
            for name, speed in speeds.items():
                program.put(pools[t][name], held, -speed)
    seconds = 0.0
    for job in workload.jobs:
        own = grown(job, workload.topology)
        work = program.equal(1.0)
        late = program.variable(1.0)
        tangents = []
        more = max(own.fastest - 1, 1e-9)
        for share in TANGENTS if own.slope > 0 and own.fastest > 1 else (0.0,):
            least_s = own.lone_s / 2 * ((1 - share) ** 2 + share**2 / more)
            steep = own.lone_s * (share / more - (1 - share))
            # late >= least_s + steep * (the share done by growing - this share)
            tangents.append((program.row(steep * share - least_s), steep))
            program.put(tangents[-1][0], late, -1.0)
        seconds -= job.arrival_s
        for t in range(intervals):
            if at[t + 1] <= job.arrival_s:
                continue
            begin_s = max(float(at[t]), job.arrival_s)
            part = float(at[t + 1] - begin_s) / own.lone_s
            rate = job.gpus * own.lone_s / float(at[t + 1] - at[t])
            for fast in (False, True) if len(tangents) > 1 else (False,):
                done = program.variable(begin_s, part * (more if fast else 1.0))
                program.put_equal(work, done, 1.0)
                program.put(pools[t][job.model.name], done, rate / own.slope if fast else rate)
                for row, steep in tangents if fast else ():
                    program.put(row, done, steep)
    return (program.least() + seconds) / len(workload.jobs)


def _holders(names: Sequence[str], pairs: Pairs | None) -> list[dict[str, float]]:
    """The uses of a GPU: speeds of the models that are on it, one or a measured pair."""
    found = [{name: 1.0} for name in names]
    for place, one in enumerate(names):
        for other in names[place:]:
            slow = pairs and pairs.slow.get((one, other))
            back = pairs and pairs.slow.get((other, one))
            if slow and back:
                speeds = {one: 1 / slow}
                speeds[other] = speeds.get(other, 0.0) + 1 / back
                if sum(speeds.values()) > 1:
                    found.append(speeds)
    return found


class _Program:
    """A linear program: the least cost with rows up to limits, and others equal."""

    def __init__(self) -> None:
        self._cost: list[float] = []
        self._most: list[float | None] = []
        self._limits: list[float] = []
        self._values: list[float] = []
        self._entries: list[tuple[int, int, float]] = []
        self._equals: list[tuple[int, int, float]] = []

    def variable(self, cost: float, most: float | None = None) -> int:
        self._cost.append(cost)
        self._most.append(most)
        return len(self._cost) - 1

    def row(self, limit: float) -> int:
        self._limits.append(limit)
        return len(self._limits) - 1

    def equal(self, value: float) -> int:
        self._values.append(value)
        return len(self._values) - 1

    def put(self, row: int, variable: int, factor: float) -> None:
        self._entries.append((row, variable, factor))

    def put_equal(self, row: int, variable: int, factor: float) -> None:
        self._equals.append((row, variable, factor))

    def least(self) -> float:
        """The least cost; an MltcpError where there is none."""
        from scipy.optimize import linprog

        found = linprog(
            self._cost,
            A_ub=self._matrix(self._entries, len(self._limits)),
            b_ub=self._limits,
            A_eq=self._matrix(self._equals, len(self._values)),
            b_eq=self._values,
            bounds=[(0.0, most) for most in self._most],
            method="highs",
        )
        if not found.success:
            raise MltcpError(f"The least completion time can't be worked out: {found.message}")
        return float(found.fun)

    def _matrix(self, entries: Sequence[tuple[int, int, float]], rows: int) -> Any:
        from scipy.sparse import coo_array

        row, column, value = zip(*entries, strict=True)
        return coo_array((value, (row, column)), shape=(rows, len(self._cost))).tocsr()
