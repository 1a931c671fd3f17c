# SPDX-License-Identifier: BSD-2-Clause
"""Elastic training on servers that come and go: FaPES' scheduler and Lyra's."""

from __future__ import annotations

from collections.abc import Mapping

from mltcp_tools.clusters.models import Allocation
from mltcp_tools.clusters.policies.orders import start_in_order
from mltcp_tools.clusters.policies.placing import take
from mltcp_tools.clusters.policies.plan import ROUND_S, decide, speed
from mltcp_tools.clusters.view import RESTART_S, Decision, View


class Fapes:
    """Loans, marginal gains and restarts only where they pay: `policies/plan.py` says how many
    GPUs each job has, and a server that is reclaimed is the one whose jobs lose least."""

    name = "fapes"
    round_s: float | None = ROUND_S

    def decide(self, view: View) -> Decision:
        """New counts, and places for those that change."""
        return decide(view)

    @staticmethod
    def reclaim_cost(view: View, server: int) -> float:
        """GPU seconds that stop if the server leaves: its jobs restart, and are smaller then."""
        cost = 0.0
        for state in view.running:
            if server in state.allocation:
                have = sum(state.allocation.values())
                less = have - state.allocation[server]
                cost += RESTART_S * have + view.remaining_s(state) * (
                    1 - speed(view, state, less) / speed(view, state, have)
                )
        return cost


class Lyra:
    """Lyra's greedy scheduler: base demands first, the shortest job first; the rest of the GPUs to
    the jobs whose completion time that reduces most (a knapsack by saved time per GPU). A job's
    base is what it asked for, its most twice that; servers are reclaimed by preemption cost."""

    name = "lyra"
    round_s: float | None = 300.0

    def decide(self, view: View) -> Decision:
        """Running jobs keep at least what they have; idle GPUs grow them in rounds."""
        kept: dict[int, Allocation] = {s.number: s.allocation for s in view.running}
        waiting = sorted(view.waiting, key=lambda s: (view.remaining_s(s), s.number))
        free = view.free.copy()
        decided = kept | start_in_order(view, free, waiting)
        if any(state.number not in decided for state in view.waiting):
            return decided
        return self._grown(view, decided, int(free.sum()))

    @staticmethod
    def _grown(
        view: View, decided: Mapping[int, Allocation], room: int
    ) -> Mapping[int, Allocation]:
        grown = dict(decided)
        gains = []
        for state in view.running:
            have, own = sum(state.allocation.values()), state.job.gpus
            more = 2 * own - have
            if 0 < more <= room:
                left_s = view.remaining_s(state)
                saved_s = left_s / speed(view, state, have) - left_s / speed(view, state, 2 * own)
                if saved_s > 2 * RESTART_S:
                    gains.append((-saved_s / more, state.number, state))
        free = view.free_without(decided)
        for number, allocation in decided.items():
            if number not in {state.number for state in view.running}:
                for server, gpus in allocation.items():
                    free[server] -= gpus
        for _, number, state in sorted(gains, key=lambda each: each[:2]):
            more = 2 * state.job.gpus - sum(state.allocation.values())
            if more > int(free.sum()):
                continue
            joined = dict(state.allocation)
            order = sorted(range(len(free)), key=lambda each: (each not in joined, -free[each]))
            extra = take(free, order, more)
            for server, gpus in extra.items():
                joined[server] = joined.get(server, 0) + gpus
                free[server] -= gpus
            grown[number] = joined
        return grown
