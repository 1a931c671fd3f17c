"""Trained agents as a scheduling policy, beside all others."""

from __future__ import annotations

from mltcp_tools.clusters.marl.env import Meeting
from mltcp_tools.clusters.marl.interference import Interference
from mltcp_tools.clusters.marl.network import Agents
from mltcp_tools.clusters.marl.train import act
from mltcp_tools.clusters.policies.plan import ROUND_S
from mltcp_tools.clusters.view import Decision, View


class Marl:
    """The agents' likeliest actions."""

    name = "marl"
    round_s: float | None = ROUND_S

    def __init__(self, agents: Agents, interference: Interference, scale_s: float) -> None:
        self._agents, self._interference, self._scale_s = agents, interference, scale_s

    def decide(self, view: View) -> Decision:
        """Who runs, and who shares."""
        meeting = Meeting(view, self._interference)
        while meeting.asked:
            picks, _, _ = act(self._agents, meeting.observation(self._scale_s), None)
            meeting.answer(dict(enumerate(picks.tolist())))
        return meeting.settled.decided
