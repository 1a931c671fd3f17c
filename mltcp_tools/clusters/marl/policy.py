"""Trained agents as a scheduling policy, beside all others."""

from __future__ import annotations

from mltcp_tools.clusters.marl.features import WEIGHTS, Interference, candidates, observe
from mltcp_tools.clusters.marl.network import Agents
from mltcp_tools.clusters.marl.train import act
from mltcp_tools.clusters.policies.plan import ROUND_S, decide
from mltcp_tools.clusters.view import Decision, View


class Marl:
    """The agents' likeliest actions."""

    name = "marl"
    round_s: float | None = ROUND_S

    def __init__(self, agents: Agents, interference: Interference, scale_s: float) -> None:
        self._agents, self._interference, self._scale_s = agents, interference, scale_s

    def decide(self, view: View) -> Decision:
        """A weight for each job and a bid of each leaf, and what the plan makes of them."""
        chosen = candidates(view)
        if not chosen:
            return {}
        seen = observe(view, chosen, self._scale_s, self._interference)
        classes, bids, _, _ = act(self._agents, seen, None)
        weights = {s.number: WEIGHTS[c] for s, c in zip(chosen, classes, strict=False)}
        return decide(view, weights, bids, self._interference.slowdown)
