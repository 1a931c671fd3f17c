"""Policies that are an order of jobs and a way to place them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from mltcp_tools.clusters.models import Allocation
from mltcp_tools.clusters.policies.placing import Place
from mltcp_tools.clusters.view import Decision, Ints, JobState, View


def start_in_order(
    view: View, free: Ints, states: Iterable[JobState], place: Place, *, backfill: bool
) -> dict[int, Allocation]:
    """Places of the jobs, first to last; without backfill the first that doesn't fit ends it."""
    decided: dict[int, Allocation] = {}
    room = int(free.sum())
    for state in states:
        if room <= 0:
            break
        if state.job.gpus > room:
            if backfill:
                continue
            break
        decided[state.number] = place(view, free, state, state.job.gpus)
        for server, gpus in decided[state.number].items():
            free[server] -= gpus
        room -= state.job.gpus
    return decided


class Fifo:
    """First come, first served; nobody is preempted. backfill: jobs that fit may overtake."""

    round_s: float | None = None

    def __init__(self, name: str, place: Place, *, backfill: bool = False) -> None:
        self.name = name
        self._place = place
        self._backfill = backfill

    def decide(self, view: View) -> Decision:
        """The running ones, and who fits."""
        kept = {state.number: state.allocation for state in view.running}
        free = view.free.copy()
        return kept | start_in_order(view, free, view.waiting, self._place, backfill=self._backfill)


class Preemptive:
    """The first jobs of an order run; one that ran before keeps its place."""

    round_s: float | None = None

    def __init__(self, name: str, place: Place) -> None:
        self.name = name
        self._place = place

    def order(self, view: View) -> Sequence[JobState]:
        """All jobs, the first first."""
        raise NotImplementedError

    def decide(self, view: View) -> Decision:
        """As many of the first jobs as fit, and behind them any that fit."""
        room = view.topology.total_gpus - self._down(view)
        chosen: list[JobState] = []
        for state in self.order(view):
            if state.job.gpus <= room:
                chosen.append(state)
                room -= state.job.gpus
        kept = {state.number: state.allocation for state in chosen if state.running}
        free = view.free_without(kept)
        new = [state for state in chosen if not state.running]
        return kept | start_in_order(view, free, new, self._place, backfill=True)

    @staticmethod
    def _down(view: View) -> int:
        used = sum(sum(state.allocation.values()) for state in view.running)
        return view.topology.total_gpus - int(view.free.sum()) - used


class ShortestRemaining(Preemptive):
    """The job with the least time to go first; lengths are known."""

    def order(self, view: View) -> Sequence[JobState]:
        """By remaining time."""
        return sorted((*view.running, *view.waiting), key=lambda s: (view.remaining_s(s), s.number))


class LeastAttained(Preemptive):
    """Tiresias: queues by attained GPU time, first come first served within one (NSDI 2019)."""

    round_s: float | None = 360.0

    def __init__(self, name: str, place: Place) -> None:
        super().__init__(name, place)
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
            alone_s = state.lone_total_s * max(1.0, state.job.gpus / share)
            return shared_s / max(alone_s, 1e-9) if math.isfinite(alone_s) else 0.0

        return sorted(states, key=lambda state: (-rho(state), state.number))
