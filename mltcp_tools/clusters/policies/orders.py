"""Policies that are an order of jobs and a way to place them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from mltcp_tools.clusters.models import Allocation
from mltcp_tools.clusters.policies.placing import Place, place
from mltcp_tools.clusters.view import Decision, Ints, JobState, View


def start_in_order(
    view: View, free: Ints, states: Iterable[JobState], place: Place = place
) -> dict[int, Allocation]:
    """Places of the jobs, first to last; those that fit overtake others that don't. `free` gets
    less by what they take."""
    decided: dict[int, Allocation] = {}
    room = int(free.sum())
    for state in states:
        if room <= 0:
            break
        if state.job.gpus <= room and (found := place(view, free, state)):
            decided[state.number] = found
            _took(free, found)
            room -= state.job.gpus
    return decided


def _took(free: Ints, allocation: Allocation) -> None:
    for server, gpus in allocation.items():
        free[server] -= gpus


class Fifo:
    """First come, first served, with backfilling: jobs that fit overtake those that don't. Nobody
    is preempted."""

    round_s: float | None = None

    def __init__(self, name: str, place: Place = place) -> None:
        self.name = name
        self._place = place

    def decide(self, view: View) -> Decision:
        """The running ones, and who fits."""
        kept = {state.number: state.allocation for state in view.running}
        return kept | start_in_order(view, view.free.copy(), view.waiting, self._place)


class Preemptive:
    """The first jobs of an order run; one that ran before keeps its place, unless one before it
    fits nowhere else."""

    round_s: float | None = None

    def __init__(self, name: str) -> None:
        self.name = name

    def order(self, view: View) -> Sequence[JobState]:
        """All jobs, the first first."""
        raise NotImplementedError

    def decide(self, view: View) -> Decision:
        """As many of the first jobs as fit, and behind them any that fit."""
        # Of `room`, what later jobs run on is free for this one; of `idle`, nothing that runs.
        room, idle = view.free_without({}), view.free.copy()
        decided: dict[int, Allocation] = {}
        for state in self.order(view):
            found = state.allocation
            if state.running:
                if any(room[server] < gpus for server, gpus in found.items()):
                    continue
            else:
                found = place(view, idle, state) or place(view, room, state)
            if found:
                decided[state.number] = found
                _took(room, found)
                if not state.running:
                    _took(idle, found)
                idle = np.clip(idle, 0, room)
        return decided


class ShortestRemaining(Preemptive):
    """The job with the least time to go first; lengths are known."""

    def order(self, view: View) -> Sequence[JobState]:
        """By remaining time."""
        return sorted((*view.running, *view.waiting), key=lambda s: (view.remaining_s(s), s.number))


class LeastAttained(Preemptive):
    """Tiresias: queues by attained GPU time, first come first served within one (NSDI 2019)."""

    round_s: float | None = 360.0

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.queues_s = (3600.0, 10 * 3600.0)

    def order(self, view: View) -> Sequence[JobState]:
        """By queue, then arrival."""

        def key(state: JobState) -> tuple[int, float, int]:
            attained = state.attained_s(view.now_s)
            queue = sum(attained >= edge for edge in self.queues_s)
            return queue, state.job.arrival_s, state.number

        return sorted((*view.running, *view.waiting), key=key)


class Fair(Preemptive):
    """Themis: who is furthest behind a fair share first (NSDI 2020).

    rho is the time a job takes as it goes, over what it would take with 1/n of the cluster.
    """

    round_s: float | None = 600.0

    def order(self, view: View) -> Sequence[JobState]:
        """By finish-time fairness, the largest first."""
        states = (*view.running, *view.waiting)
        share = view.topology.total_gpus / max(1, len(states))

        def rho(state: JobState) -> float:
            left_s = view.remaining_s(state)
            shared_s = (view.now_s - state.job.arrival_s) + left_s
            alone_s = state.isolated_total_s * max(1.0, state.job.gpus / share)
            return shared_s / max(alone_s, 1e-9) if math.isfinite(alone_s) else 0.0

        return sorted(states, key=lambda state: (-rho(state), state.number))
