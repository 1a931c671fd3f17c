# SPDX-License-Identifier: BSD-2-Clause
"""Cassini's choice among placements: whose bursts fit together best (NSDI 2024, section 4)."""

from __future__ import annotations

from mltcp_tools.clusters.engine.library import Iteration
from mltcp_tools.clusters.models import Allocation, iteration_of
from mltcp_tools.clusters.policies.orders import start_in_order
from mltcp_tools.clusters.policies.placing import place, shuffled
from mltcp_tools.clusters.time_shifts import score_last
from mltcp_tools.clusters.view import Decision, Ints, JobState, View

CANDIDATES = 4


class Cassini:
    """First come, first served, with backfilling; each job goes where it fits best with its
    neighbours on shared links. The treatment `time_shifts` adds the shifts."""

    name = "cassini"
    round_s: float | None = None

    def __init__(self, seed: int = 1) -> None:
        self._places = (place, *(shuffled(seed * 100 + n) for n in range(CANDIDATES - 1)))

    def decide(self, view: View) -> Decision:
        """The running jobs stay; waiting ones are placed one by one."""
        decided: dict[int, Allocation] = {s.number: s.allocation for s in view.running}
        others = [_iteration(view, state, state.allocation) for state in view.running]

        def best(view: View, free: Ints, state: JobState) -> Allocation:
            tried = (candidate(view, free, state) for candidate in self._places)
            found = [(each, _iteration(view, state, each)) for each in tried if each]
            if not found:
                return {}
            # Of equals the first, which is the nearest; sums may differ in their last digits.
            scores = [round(score_last(view.topology, [*others, own]), 9) for _, own in found]
            allocation, own = found[scores.index(max(scores))]
            others.append(own)
            return allocation

        return decided | start_in_order(view, view.free.copy(), view.waiting, best)


def _iteration(view: View, state: JobState, allocation: Allocation) -> Iteration:
    return iteration_of(state.job.model, view.topology, allocation, state.number)
