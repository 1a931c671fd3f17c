"""Elastic scheduling by marginal goodput, as Pollux does it (OSDI 2021).

A job with k GPUs instead of its own number takes k times as many samples per second, less what
synchronising costs and less what larger batches lose in statistical efficiency: with the noise
scale phi, that is (1 + phi) / (k / k0 + phi) of what as many small batches would have brought
(McCandlish et al. 2018, formula 2.11, in units of the job's own batch).
"""

from __future__ import annotations

import heapq

from mltcp_tools.clusters.models import Allocation
from mltcp_tools.clusters.policies.placing import near
from mltcp_tools.clusters.view import Decision, JobState, View

NOISE_SCALE = 4.0
SPREAD = 4
"""A job gets at most so many times the GPUs it asked for."""


def efficiency(factor: float) -> float:
    """Work per sample with `factor` times the job's own batch, at most 1."""
    return (1 + NOISE_SCALE) / (max(1.0, factor) + NOISE_SCALE)


def speed(state: JobState, gpus: int) -> float:
    """Iterations' worth of work per second with so many GPUs."""
    if gpus < 1:
        return 0.0
    job, own = state.job, state.job.gpus
    sending_s = max(0.0, state.lone_s - job.model.compute_s)
    # What a ring sends hardly depends on how many take part; two servers are enough to pay for it.
    took_s = job.model.compute_s + (sending_s if gpus > 1 else 0.0)
    return gpus / own * efficiency(gpus / own) / took_s


class Goodput:
    """GPUs go one by one to where they add most, relative to what the job had with its own."""

    name = "goodput"
    round_s: float | None = 600.0

    def decide(self, view: View) -> Decision:
        """New numbers of GPUs; jobs whose number stays keep their place."""
        states = sorted((*view.running, *view.waiting), key=lambda state: state.number)
        down = (
            view.topology.total_gpus
            - int(view.free.sum())
            - sum(sum(state.allocation.values()) for state in view.running)
        )
        counts = self._divide(states, view.topology.total_gpus - down)
        kept: dict[int, Allocation] = {
            state.number: state.allocation
            for state in view.running
            if self._keeps(state, counts[state.number])
        }
        free = view.free_without(kept)
        decided = dict(kept)
        for state in states:
            want = min(counts[state.number], int(free.sum()))
            if state.number in kept or not want:
                continue
            decided[state.number] = near(view, free, state, want)
            for server, gpus in decided[state.number].items():
                free[server] -= gpus
        return decided

    @staticmethod
    def _keeps(state: JobState, count: int) -> bool:
        """A restart costs; a change of less than a quarter isn't worth it (Pollux penalises it)."""
        have = sum(state.allocation.values())
        return bool(count) and abs(count - have) * 4 < have

    @staticmethod
    def _divide(states: list[JobState], total: int) -> dict[int, int]:
        counts = dict.fromkeys((state.number for state in states), 0)
        heap = [(-_gain(state, 0), state.number, state) for state in states]
        heapq.heapify(heap)
        while total and heap:
            _, number, state = heapq.heappop(heap)
            counts[number] += 1
            total -= 1
            if counts[number] < SPREAD * state.job.gpus:
                heapq.heappush(heap, (-_gain(state, counts[number]), number, state))
        return counts


def _gain(state: JobState, gpus: int) -> float:
    """What one more GPU adds to the job's speed-up, which weighs less the larger it is."""
    own = speed(state, state.job.gpus)
    before, after = speed(state, gpus) / own, speed(state, gpus + 1) / own
    # The power mean with p = -1 of Pollux, as a marginal gain: small shares count most.
    return (after - before) / max(before, 1e-2) ** 2
