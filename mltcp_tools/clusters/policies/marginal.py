"""Elastic scheduling by marginal gains, after Pollux (OSDI 2021), which adapts batches as well.

A job with k GPUs instead of its own number takes k times as many samples per second, less what
synchronising costs and less what larger batches lose in statistical efficiency: with the noise
scale phi, that is (1 + phi) / (k / k0 + phi) of what as many small batches would have brought
(McCandlish et al. 2018, formula 2.11, in units of the job's own batch).
"""

from __future__ import annotations

import heapq

from mltcp_tools.clusters.models import Allocation
from mltcp_tools.clusters.policies.placing import place_counts
from mltcp_tools.clusters.view import Decision, JobState, View
from mltcp_tools.clusters.workload import alone_s

NOISE_SCALE = 4.0
SPREAD = 2
"""A job gets at most so many times the GPUs it asked for."""


def efficiency(factor: float) -> float:
    """Work per sample with `factor` times the job's own batch, at most 1."""
    return (1 + NOISE_SCALE) / (max(1.0, factor) + NOISE_SCALE)


def speed(view: View, state: JobState, gpus: int) -> float:
    """Share of the job's own speed with so many GPUs, 1 with those it asked for.

    Its performance model is that of a job alone on neighbouring servers: nothing is sent inside
    one server, and beyond a leaf the network is as narrow as it is.
    """
    if gpus < 1:
        return 0.0
    factor = gpus / state.job.gpus
    iteration_s = alone_s(state.job.model, min(gpus, view.topology.total_gpus), view.topology)
    return factor * efficiency(factor) * state.lone_s / iteration_s


class Marginal:
    """GPUs go one by one to where they add most, relative to what the job had with its own.

    Running jobs change in rounds only; between them, who waits gets what is free.
    """

    name = "marginal"
    round_s: float | None = 600.0

    def __init__(self) -> None:
        self._round = -1

    def decide(self, view: View) -> Decision:
        """New numbers of GPUs; jobs whose number stays keep their place."""
        assert self.round_s is not None
        states = sorted((*view.running, *view.waiting), key=lambda state: state.number)
        held = sum(sum(state.allocation.values()) for state in view.running)
        counts = self._divide(view, states, int(view.free.sum()) + held)
        this = int(view.now_s // self.round_s)
        between, self._round = this == self._round, this
        kept: dict[int, Allocation] = {
            state.number: state.allocation
            for state in view.running
            if between or self._keeps(state, counts[state.number])
        }
        return place_counts(view, kept, states, counts)

    @staticmethod
    def _keeps(state: JobState, count: int) -> bool:
        """A restart costs; a change of less than a quarter isn't worth it (Pollux penalises it)."""
        have = sum(state.allocation.values())
        return bool(count) and abs(count - have) * 4 < have

    @staticmethod
    def _divide(view: View, states: list[JobState], total: int) -> dict[int, int]:
        counts = dict.fromkeys((state.number for state in states), 0)
        heap = [(-_gain(view, state, 0), state.number, state) for state in states]
        heapq.heapify(heap)
        while total and heap:
            _, number, state = heapq.heappop(heap)
            counts[number] += 1
            total -= 1
            if counts[number] < SPREAD * state.job.gpus:
                gain = _gain(view, state, counts[number])
                heapq.heappush(heap, (-gain, number, state))
        # A step may lose speed that the next ones win back; what isn't won back isn't taken.
        return {state.number: _fastest(view, state, counts[state.number]) for state in states}


def _fastest(view: View, state: JobState, most: int) -> int:
    """Of 0 to `most` GPUs the number with which the job is fastest, the least of equals."""
    return max(range(most + 1), key=lambda gpus: (speed(view, state, gpus), -gpus))


def _gain(view: View, state: JobState, gpus: int) -> float:
    """Return the gain in the job's speed-up by one more GPU, which weighs less the larger it is.

    The power mean with p = -1 of Pollux, as a marginal gain: small shares count most.
    """
    before, after = speed(view, state, gpus), speed(view, state, gpus + 1)
    return (after - before) / max(before, 1e-2) ** 2
