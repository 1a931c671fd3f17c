# SPDX-License-Identifier: BSD-2-Clause
"""Policies that are an order of jobs and a way to place them."""

from __future__ import annotations

from collections.abc import Iterable

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


class ShortestRemaining:
    """The job with the least time to go first; lengths are known. One that ran before keeps its
    place, unless one before it fits nowhere else."""

    name = "srtf"
    round_s: float | None = None

    def decide(self, view: View) -> Decision:
        """As many of the first jobs as fit, and behind them any that fit."""
        order = sorted(
            (*view.running, *view.waiting), key=lambda s: (view.remaining_s(s), s.number)
        )
        # Of `room`, what later jobs run on is free for this one; of `idle`, nothing that runs.
        room, idle = view.free_without({}), view.free.copy()
        decided: dict[int, Allocation] = {}
        for state in order:
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


class Replay:
    """A job has the GPUs that it had, as soon as they are free; one whose place isn't known goes
    where `fifo` puts it."""

    name = "replay"
    round_s: float | None = None

    def decide(self, view: View) -> Decision:
        """The running ones, and those whose GPUs are free."""
        decided: dict[int, Allocation] = {s.number: s.allocation for s in view.running}
        free = view.free.copy()
        for state in view.waiting:
            placed: Allocation = dict(state.job.placement)
            if not placed:
                placed = place(view, free, state)
            if not placed or any(free[server] < gpus for server, gpus in placed.items()):
                continue
            decided[state.number] = placed
            for server, gpus in placed.items():
                free[server] -= gpus
        return decided
