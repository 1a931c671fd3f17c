# SPDX-License-Identifier: BSD-2-Clause
"""Policies that are an order of jobs and a way to place them."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping

import numpy as np

from mltcp_tools.clusters.models import Allocation
from mltcp_tools.clusters.policies.placing import Place, place
from mltcp_tools.clusters.view import Decision, Ints, JobState, View


def start_in_order(
    view: View, free: Ints, states: Iterable[JobState], place: Place = place
) -> dict[int, Allocation]:
    """Places of the jobs, first to last. The first one that doesn't fit gets a reservation; those
    behind it start only where they don't delay it (EASY backfilling: Lifka 1995). `free` gets less
    by what they take."""
    decided: dict[int, Allocation] = {}
    lengths_s: dict[int, float] = {}
    room, begins_s, spare = int(free.sum()), math.inf, free
    for state in states:
        if room <= 0:
            break
        left_s = view.remaining_s(state)
        late = left_s > begins_s
        found: Allocation = {}
        if state.job.gpus <= room:
            found = place(view, np.minimum(free, spare) if late else free, state)
        if found:
            decided[state.number], lengths_s[state.number] = found, left_s
            _took(free, found)
            room -= state.job.gpus
            if late:
                _took(spare, found)
        elif math.isinf(begins_s):
            begins_s, spare = _reserved(view, free, state, decided, lengths_s)
    return decided


def _reserved(
    view: View,
    free: Ints,
    state: JobState,
    decided: Mapping[int, Allocation],
    lengths_s: Mapping[int, float],
) -> tuple[float, Ints]:
    """Seconds until the job can start, if jobs run as long as alone, and what is free then beside
    it; an instant that never comes where it can't, so that nobody waits for it."""
    ends = [(view.remaining_s(other), other.allocation) for other in view.running]
    ends += [(lengths_s[number], own) for number, own in decided.items()]
    ends.sort(key=lambda each: each[0])
    first, last = 0, len(ends)
    found: Allocation = {}
    while first < last:
        middle = (first + last) // 2
        if tried := place(view, _after(free, ends[: middle + 1]), state):
            found, last = tried, middle
        else:
            first = middle + 1
    if not found:
        return sys.float_info.max, free
    spare = _after(free, ends[: last + 1])
    _took(spare, found)
    return ends[last][0], spare


def _after(free: Ints, ended: Iterable[tuple[float, Allocation]]) -> Ints:
    """Free GPUs when those jobs have ended."""
    found = free.copy()
    for _, allocation in ended:
        for server, gpus in allocation.items():
            found[server] += gpus
    return found


def _took(free: Ints, allocation: Allocation) -> None:
    for server, gpus in allocation.items():
        free[server] -= gpus


class Fifo:
    """First come, first served, with backfilling. Nobody is preempted."""

    name = "fifo"
    round_s: float | None = None

    def __init__(self, place: Place = place) -> None:
        self._place = place

    def decide(self, view: View) -> Decision:
        """The running ones, and who fits."""
        kept = {state.number: state.allocation for state in view.running}
        return kept | start_in_order(view, view.free.copy(), view.waiting, self._place)


class Replay:
    """A job has the GPUs that it had, as soon as they are free, and before later ones; one whose
    place isn't known goes where `fifo` puts it."""

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
            if placed and all(free[server] >= gpus for server, gpus in placed.items()):
                decided[state.number] = placed
            # Where they aren't free yet, later jobs don't get them first.
            _took(free, placed)
        return decided
