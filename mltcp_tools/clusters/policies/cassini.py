# SPDX-License-Identifier: BSD-2-Clause
"""Cassini's choice among placements: whose bursts fit together best (NSDI 2024, section 4)."""

from __future__ import annotations

from mltcp_tools.clusters.models import Allocation, phases_of
from mltcp_tools.clusters.policies.orders import start_in_order
from mltcp_tools.clusters.policies.placing import place, shuffled
from mltcp_tools.clusters.time_shifts import Sharing, score
from mltcp_tools.clusters.view import Decision, Ints, JobState, View

CANDIDATES = 4


class Cassini:
    """First come first served with backfilling; each job goes where it fits best with its
    neighbours on shared links. Shifts are the treatment `time_shifts`, which goes with it."""

    name = "cassini"
    round_s: float | None = None

    def __init__(self, seed: int = 1) -> None:
        self._places = (place, *(shuffled(seed * 100 + n) for n in range(CANDIDATES - 1)))

    def decide(self, view: View) -> Decision:
        """The running jobs stay; waiting ones are placed one by one."""
        decided: dict[int, Allocation] = {s.number: s.allocation for s in view.running}
        sharing = [self._sharing(view, s, s.allocation) for s in view.running]

        def fitting(view: View, free: Ints, state: JobState) -> Allocation:
            best: Allocation = {}
            best_score = -1e9
            for candidate in self._places:
                allocation = candidate(view, free, state)
                if not allocation:
                    break
                new = self._sharing(view, state, allocation)
                found = score(view.topology, [*sharing, new], around=len(sharing))
                # Of equals the first: what is near needs no luck.
                if found > best_score + 1e-9:
                    best, best_score = allocation, found
            if best:
                sharing.append(self._sharing(view, state, best))
            return best

        return decided | start_in_order(view, view.free.copy(), view.waiting, fitting)

    @staticmethod
    def _sharing(view: View, state: JobState, allocation: Allocation) -> Sharing:
        phases = phases_of(state.job.model, view.topology, allocation, state.number)
        return Sharing(str(state.number), phases)
