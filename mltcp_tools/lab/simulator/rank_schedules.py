# SPDX-License-Identifier: BSD-2-Clause
"""The schedules of jobs whose ranks communicate in patterns over a fabric.

schedules.py has those of jobs that send whole bursts, which wait for their links all at once. Here
a fluid model gives each message a rate, which changes when a message begins or ends. Ranks have the
tasks that they have in the packet simulator.

- `alone`: every job has the fabric to itself, and its own messages share links max-min fairly.
- `bound`: perfect interleaving. Links serve the messages of the job whose iteration began to
  communicate first, then with what these leave those of the next one, and so on.
- `fair`: all messages share the links max-min fairly, as under ideal congestion control.

An iteration's communication lasts from the first message of any rank until the last rank is done,
including any computing in between.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from mltcp_tools.lab.emulator.patterns import RankTask, connection_of, connections
from mltcp_tools.lab.planning.filling import Filling
from mltcp_tools.lab.simulator.schedules import Schedule

Floats = npt.NDArray[np.float64]

# Less than this of a byte is nothing: sums of floats don't cancel exactly.
_EPSILON = 1e-6


@dataclass(frozen=True)
class RankedJob:
    """A job as it is simulated here.

    tasks: of an iteration. paths: the links that each of their connections crosses, in the order in
    which these are first used. compute_s: of each iteration, seconds. latencies_s: of each path,
    from the end of a message on its links until the receiver has it.
    """

    name: str
    start_s: float
    compute_s: Sequence[float]
    tasks: Sequence[RankTask]
    paths: Sequence[Sequence[Hashable]]
    latencies_s: Sequence[float]


class _State:
    """The state of a job."""

    def __init__(self, job: RankedJob) -> None:
        self.job = job
        numbers = {each: n for n, each in enumerate(connections(job.tasks))}
        self.connection = [None if t.to is None else numbers[connection_of(t)] for t in job.tasks]
        self.behind: list[list[int]] = [[] for _ in job.tasks]
        for number, task in enumerate(job.tasks):
            for before in task.after:
                self.behind[before].append(number)
        self.ranks = 1 + max(task.ends_at for task in job.tasks)
        ends = [task.ends_at for task in job.tasks]
        count = len(job.compute_s)
        self.waiting = [[len(task.after) + 1 for task in job.tasks] for _ in range(count)]
        self.left = [[ends.count(rank) for rank in range(self.ranks)] for _ in range(count)]
        self.busy = [self.ranks] * count
        self.queues: list[deque[tuple[int, int]]] = [deque() for _ in numbers]
        self.first: list[float | None] = [None] * count
        self.end = [0.0] * count
        self.done = 0  # iterations


def _links(jobs: Sequence[RankedJob], rates: Mapping[Any, float]) -> Filling:
    """Links that give connections of all jobs their rates, bytes per second."""
    numbers = {name: number for number, name in enumerate(rates)}
    paths = [[numbers[link] for link in path] for job in jobs for path in job.paths]
    return Filling(paths, np.array(list(rates.values()), dtype=float))


class _Run:
    """All jobs on the same links, from start to end."""

    def __init__(
        self, jobs: Sequence[RankedJob], rates: Mapping[Any, float], *, in_order: bool
    ) -> None:
        self.states = [_State(job) for job in jobs]
        self._links = _links(jobs, rates)
        self._in_order = in_order
        self._first = np.cumsum([0, *(len(job.paths) for job in jobs)])
        self._left = np.zeros(self._first[-1])  # bytes of each connection's present message
        self._latency_s = [each for job in jobs for each in job.latencies_s]
        # (time, which was added first, job, iteration, task) of tasks that will be done
        self._events: list[tuple[float, int, int, int, int]] = []
        self._added = 0
        self._now = 0.0

    def run(self) -> None:
        for number, state in enumerate(self.states):
            # Nothing of a task's number: the job begins.
            self._at(state.job.start_s, number, 0, -1)
        while self._events or self._left.any():
            active = np.flatnonzero(self._left)
            rates = self._links.shares(self._classes(active))
            moving = active[rates[active] > 0]
            until = np.min(self._left[moving] / rates[moving], initial=np.inf)
            next_s = min(self._now + until, self._events[0][0] if self._events else np.inf)
            if not np.isfinite(next_s):
                raise AssertionError("nothing moves any more")
            self._left[active] -= rates[active] * (next_s - self._now)
            self._now = float(next_s)
            for row in active[self._left[active] <= _EPSILON]:
                self._carried(int(row))
            while self._events and self._events[0][0] <= self._now:
                _, _, job, iteration, task = heapq.heappop(self._events)
                if task < 0:
                    for rank in range(self.states[job].ranks):
                        self._begin(job, rank, 0)
                else:
                    self._done(job, iteration, task)

    def _classes(self, active: npt.NDArray[np.intp]) -> list[npt.NDArray[np.intp]]:
        if not self._in_order:
            return [active]
        owners = np.searchsorted(self._first, active, side="right") - 1
        order = sorted(set(owners.tolist()), key=lambda job: (self._began(job), job))
        return [active[owners == job] for job in order]

    def _began(self, job: int) -> float:
        """Return the time at which the job's present iteration began to communicate."""
        state = self.states[job]
        began = state.first[min(state.done, len(state.first) - 1)]
        return self._now if began is None else began

    def _at(self, time_s: float, job: int, iteration: int, task: int) -> None:
        heapq.heappush(self._events, (time_s, self._added, job, iteration, task))
        self._added += 1

    def _begin(self, job: int, rank: int, iteration: int) -> None:
        for number, task in enumerate(self.states[job].job.tasks):
            if task.rank == rank:
                self._release(job, iteration, number)

    def _release(self, job: int, iteration: int, number: int) -> None:
        """One thing fewer that the task waits for; with the last one, it begins."""
        state = self.states[job]
        state.waiting[iteration][number] -= 1
        if state.waiting[iteration][number]:
            return
        task, connection = state.job.tasks[number], state.connection[number]
        if connection is None:
            share_s = task.share * state.job.compute_s[iteration]
            self._at(self._now + share_s, job, iteration, number)
            return
        if state.first[iteration] is None:
            state.first[iteration] = self._now
        queue = state.queues[connection]
        queue.append((iteration, number))
        if len(queue) == 1:
            self._left[self._first[job] + connection] = task.size

    def _carried(self, row: int) -> None:
        """The links have carried a connection's message; on to its next one."""
        job = int(np.searchsorted(self._first, row, side="right") - 1)
        state = self.states[job]
        queue = state.queues[row - self._first[job]]
        iteration, number = queue.popleft()
        self._left[row] = state.job.tasks[queue[0][1]].size if queue else 0.0
        self._at(self._now + self._latency_s[row], job, iteration, number)

    def _done(self, job: int, iteration: int, number: int) -> None:
        state = self.states[job]
        for behind in state.behind[number]:
            self._release(job, iteration, behind)
        rank = state.job.tasks[number].ends_at
        state.left[iteration][rank] -= 1
        if state.left[iteration][rank]:
            return
        state.busy[iteration] -= 1
        if not state.busy[iteration]:
            state.end[iteration] = self._now
            state.done += 1
        if iteration + 1 < len(state.busy):
            self._begin(job, rank, iteration + 1)


def simulate_ranks(
    schedule: Schedule, jobs: Sequence[RankedJob], rates: Mapping[Any, float]
) -> pd.DataFrame:
    """Iterations of all jobs under a schedule. rates: what each link carries, bytes per second.

    Returns a table with the columns job, iteration (from 1), start_s, end_s, compute_s (until the
    first message) and comm_s (from then until all ranks are done).
    """
    groups = [[job] for job in jobs] if schedule == "alone" else [list(jobs)]
    rows = []
    for group in groups:
        run = _Run(group, rates, in_order=schedule == "bound")
        run.run()
        for state in run.states:
            began = state.job.start_s
            for number, (first, end) in enumerate(zip(state.first, state.end, strict=True), 1):
                first = max(began, first or 0.0)
                rows.append((state.job.name, number, began, end, first - began, end - first))
                began = end
    columns = ["job", "iteration", "start_s", "end_s", "compute_s", "comm_s"]
    return pd.DataFrame(rows, columns=columns)
