# SPDX-License-Identifier: BSD-2-Clause
"""The schedules that variants are measured against, as event simulations.

Three ways to serve the jobs' bursts on one link, each fed with what was measured: the compute times
as they were drawn in the run, and the time a job's burst takes when it has the link to itself.

- `alone`: every job has a link of its own. Nothing is faster.
- `bound`: the link serves one burst at a time, first come first served, without pre-emption. This
  is what perfect interleaving gives.
- `fair`: the link is shared equally among the bursts present (egalitarian CPU sharing). This
  is what ideal fair congestion control gives.

Where jobs cross several links, a burst takes every one of its own at the same time: under `bound`
it waits until the bursts that asked for one of them earlier are done; under `fair` speeds are
max-min fair.

A job is sequential: it computes, then sends its burst, then computes again. With several bursts per
iteration the compute time and the bytes are split evenly: compute/B, burst, compute/B, burst, and
so on. Waiting for the link counts as communication, as it does for a real sender.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import pandas as pd

Schedule = Literal["alone", "bound", "fair"]
SCHEDULES: tuple[Schedule, ...] = ("alone", "bound", "fair")

# Work left below this many seconds is finished: sums of floats don't cancel exactly.
_EPSILON_S = 1e-12


@dataclass(frozen=True)
class ScheduledJob:
    """A job as the simulations see it.

    name: the job's name.
    start_s: when its first compute phase starts, seconds from the start of the run.
    compute_s: compute time of each iteration, seconds; its length is the number of iterations.
    isolated_comm_s: how long one whole iteration's bytes take the link, seconds.
    bursts: bursts per iteration.
    links: names of the links it crosses; jobs that share none don't meet.
    latency_s: from the end of a burst on the link until its sender knows of it, seconds; others
    have the link by then.
    """

    name: str
    start_s: float
    compute_s: Sequence[float]
    isolated_comm_s: float
    bursts: int = 1
    links: tuple[str, ...] = ("link",)
    latency_s: float = 0.0


@dataclass(frozen=True)
class _Burst:
    job: int
    iteration: int
    burst: int
    start_s: float
    end_s: float


class _Jobs:
    """The state of each job: hands out the next burst's instant and records finished bursts."""

    def __init__(self, jobs: Sequence[ScheduledJob]) -> None:
        self.jobs = jobs
        self.done: list[_Burst] = []
        self._finished = [0] * len(jobs)

    def work_s(self, job: int) -> float:
        return self.jobs[job].isolated_comm_s / self.jobs[job].bursts

    def request(self, job: int, free_s: float) -> float | None:
        """Return the time at which the job asks for the link next, having been free to compute
        since `free_s`.
        """
        spec = self.jobs[job]
        iteration = self._finished[job] // spec.bursts
        if iteration >= len(spec.compute_s):
            return None
        return free_s + spec.compute_s[iteration] / spec.bursts

    def finish(self, job: int, start_s: float, carried_s: float) -> float | None:
        """Record a burst that the link has carried, and return when the job asks for it again."""
        end_s = carried_s + self.jobs[job].latency_s
        iteration, burst = divmod(self._finished[job], self.jobs[job].bursts)
        self.done.append(_Burst(job, iteration + 1, burst + 1, start_s, end_s))
        self._finished[job] += 1
        return self.request(job, end_s)

    def first_requests(self) -> list[tuple[float, int]]:
        """A heap of (instant, job): every job's first burst."""
        requests = []
        for index, spec in enumerate(self.jobs):
            at_s = self.request(index, spec.start_s)
            if at_s is not None:
                requests.append((at_s, index))
        heapq.heapify(requests)
        return requests


def _alone(jobs: _Jobs) -> None:
    for first_s, job in jobs.first_requests():
        at_s: float | None = first_s
        while at_s is not None:
            at_s = jobs.finish(job, at_s, at_s + jobs.work_s(job))


def _bound(jobs: _Jobs) -> None:
    # Each job has one request outstanding and its next one lies later, so the heap yields requests
    # in the order in which they arrive: that is first come first served.
    requests = jobs.first_requests()
    free_s: dict[str, float] = {}
    while requests:
        request_s, job = heapq.heappop(requests)
        links = jobs.jobs[job].links
        end_s = max(request_s, *(free_s.get(link, 0.0) for link in links)) + jobs.work_s(job)
        free_s |= dict.fromkeys(links, end_s)
        next_s = jobs.finish(job, request_s, end_s)
        if next_s is not None:
            heapq.heappush(requests, (next_s, job))


def _fair(jobs: _Jobs) -> None:
    requests = jobs.first_requests()
    left_s: dict[int, float] = {}
    since_s: dict[int, float] = {}
    now_s = 0.0
    while requests or left_s:
        until_arrival_s = requests[0][0] - now_s if requests else float("inf")
        speeds = _max_min({job: jobs.jobs[job].links for job in left_s})
        until_finish_s = min((left_s[job] / speeds[job] for job in left_s), default=float("inf"))
        if left_s and until_finish_s <= until_arrival_s:
            passed_s, now_s = until_finish_s, now_s + until_finish_s
        else:
            passed_s, now_s = until_arrival_s, requests[0][0]
        for job in list(left_s):
            left_s[job] -= passed_s * speeds[job]
            if left_s[job] <= _EPSILON_S:
                del left_s[job]
                next_s = jobs.finish(job, since_s[job], now_s)
                if next_s is not None:
                    heapq.heappush(requests, (next_s, job))
        while requests and requests[0][0] <= now_s:
            request_s, job = heapq.heappop(requests)
            since_s[job], left_s[job] = request_s, jobs.work_s(job)


def _max_min(paths: Mapping[int, Sequence[str]]) -> dict[int, float]:
    """Max-min fair speeds, each a share of the links' rate, of bursts that cross these links.

    All speeds rise alike; where a link is full, those of the bursts on it stay (Bertsekas and
    Gallager, Data Networks, section 6.5.2).
    """
    speeds: dict[int, float] = {}
    while len(speeds) < len(paths):
        left: dict[str, float] = {}
        rising: dict[str, int] = {}
        for job, links in paths.items():
            for link in links:
                left[link] = left.get(link, 1.0) - speeds.get(job, 0.0)
                rising[link] = rising.get(link, 0) + (job not in speeds)
        fullest = min(
            (link for link in left if rising[link]), key=lambda link: left[link] / rising[link]
        )
        speed = left[fullest] / rising[fullest]
        speeds |= {j: speed for j, links in paths.items() if fullest in links and j not in speeds}
    return speeds


_SIMULATIONS = {"alone": _alone, "bound": _bound, "fair": _fair}


def simulate_bursts(schedule: Schedule, jobs: Sequence[ScheduledJob]) -> pd.DataFrame:
    """Bursts of all jobs under a schedule.

    Returns a table with the columns job, iteration, burst, start_s, end_s; iteration and burst
    count from 1; start_s is when the job asked for the link, so the duration contains the waiting.
    """
    state = _Jobs(jobs)
    _SIMULATIONS[schedule](state)
    rows = sorted(state.done, key=lambda b: (b.job, b.iteration, b.burst))
    return pd.DataFrame(
        {
            "job": [jobs[b.job].name for b in rows],
            "iteration": [b.iteration for b in rows],
            "burst": [b.burst for b in rows],
            "start_s": [b.start_s for b in rows],
            "end_s": [b.end_s for b in rows],
        }
    )


def iterations_of(bursts: pd.DataFrame, jobs: Sequence[ScheduledJob]) -> pd.DataFrame:
    """Iterations of a simulated schedule, in the columns of a run's table of iterations (less
    bytes).

    `bursts` is what `simulate` returned for the same jobs. Times are seconds.
    """
    table = (
        bursts.assign(comm_s=bursts["end_s"] - bursts["start_s"])
        .groupby(["job", "iteration"], as_index=False)
        .agg(end_s=("end_s", "max"), comm_s=("comm_s", "sum"))
    )
    compute = pd.DataFrame(
        [
            (job.name, iteration, seconds)
            for job in jobs
            for iteration, seconds in enumerate(job.compute_s, start=1)
        ],
        columns=["job", "iteration", "compute_s"],
    )
    table = table.merge(compute, on=["job", "iteration"])
    table["start_s"] = table["end_s"] - table["compute_s"] - table["comm_s"]
    return table[["job", "iteration", "start_s", "end_s", "compute_s", "comm_s"]]
