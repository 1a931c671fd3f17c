# SPDX-License-Identifier: BSD-2-Clause
"""Lyra's scheduler, FaPES' rival: elastic training on servers that come and go."""

from __future__ import annotations

from collections import Counter

from mltcp_tools.clusters.models import Allocation
from mltcp_tools.clusters.policies.orders import start_in_order
from mltcp_tools.clusters.policies.plan import ROUND_S, speed
from mltcp_tools.clusters.view import RESTART_S, Decision, JobState, View
from mltcp_tools.clusters.workload import take


class Lyra:
    """Lyra's greedy scheduler: base demands first, the shortest job first; the rest of the GPUs to
    the jobs whose completion time that reduces most (a knapsack by saved time per GPU). A job's
    base is what it asked for, its most twice that; servers are reclaimed by preemption cost."""

    name = "lyra"
    round_s: float | None = ROUND_S

    def decide(self, view: View) -> Decision:
        """Running jobs keep at least what they have; idle GPUs grow them in rounds."""
        free = view.free.copy()
        waiting = sorted(view.waiting, key=lambda s: (view.remaining_s(s), s.number))
        decided: dict[int, Allocation] = {s.number: s.allocation for s in view.running}
        decided |= start_in_order(view, free, waiting)
        if all(state.number in decided for state in view.waiting):
            for state, more in self._growing(view):
                if more <= free.sum():
                    own = state.allocation
                    order = sorted(range(len(free)), key=lambda n: (n not in own, -free[n]))
                    taken = take(free, order, more)
                    free[list(taken)] -= list(taken.values())
                    decided[state.number] = Counter(own) + Counter(taken)
        return decided

    @staticmethod
    def reclaim_cost(view: View, server: int) -> float:
        """The share of its jobs that a server has, summed: what stops if it leaves."""
        return sum(
            state.allocation.get(server, 0) / sum(state.allocation.values())
            for state in view.running
        )

    @staticmethod
    def _growing(view: View) -> list[tuple[JobState, int]]:
        """Jobs that more GPUs save time, and how many more; those first that save most per GPU."""
        found = []
        for state in view.running:
            have, most = sum(state.allocation.values()), 2 * state.job.gpus
            if have < most:
                now, then = (view.remaining_s(state) / speed(view, state, n) for n in (have, most))
                if now - then > 2 * RESTART_S:
                    found.append(((now - then) / (most - have), state, most - have))
        found.sort(key=lambda each: (-each[0], each[1].number))
        return [(state, more) for _, state, more in found]
