"""Trained agents as a scheduling policy, beside all others."""

from __future__ import annotations

import numpy as np

from mltcp_tools.clusters.marl.features import candidates, observe, place_by_bids
from mltcp_tools.clusters.marl.network import Agents
from mltcp_tools.clusters.marl.train import act
from mltcp_tools.clusters.models import Allocation
from mltcp_tools.clusters.view import Decision, View


class Marl:
    """The agents' likeliest actions; nobody is preempted."""

    name = "marl"
    round_s: float | None = None

    def __init__(self, agents: Agents, scale_s: float) -> None:
        self._agents, self._scale_s = agents, scale_s

    def decide(self, view: View) -> Decision:
        """Jobs one by one, until none fits or the dispatcher waits while something runs."""
        placed: dict[int, Allocation] = {s.number: s.allocation for s in view.running}
        free = view.free.copy()
        while chosen := candidates(view, free, placed):
            seen = observe(view, free, chosen, self._scale_s)
            choice, bids, _, _ = act(self._agents, seen, None)
            if choice >= len(chosen):
                if placed:
                    break
                choice = 0
            state = chosen[choice]
            allocation = place_by_bids(view, free, state.job.gpus, np.asarray(bids))
            placed[state.number] = allocation
            for server, gpus in allocation.items():
                free[server] -= gpus
        return placed
