"""Trained agents as a scheduling policy, beside all others."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

from mltcp_tools.clusters.interference import PairModel
from mltcp_tools.clusters.marl.env import Meeting, scale_s
from mltcp_tools.clusters.marl.network import Agents
from mltcp_tools.clusters.marl.train import act, load
from mltcp_tools.clusters.policies.plan import ROUND_S
from mltcp_tools.clusters.view import Decision, View
from mltcp_tools.clusters.workload import Workload


class Marl:
    """The agents' likeliest actions."""

    name = "marl"
    round_s: float | None = ROUND_S

    def __init__(self, agents: Agents, known: PairModel, scale_s: float) -> None:
        self._agents, self._known, self._scale_s = agents, known, scale_s

    def decide(self, view: View) -> Decision:
        """Return the jobs that run, and those that share."""
        meeting = Meeting(view, self._known)
        while meeting.asked:
            picks, _, _ = act(self._agents, meeting.observation(self._scale_s), None)
            meeting.answer(dict(enumerate(picks.tolist())))
        return meeting.settled.decided


def of_checkpoint(file: Path | BinaryIO, name: str, workload: Workload) -> Marl:
    """The agents that a checkpoint holds, for this workload; a UsageError calls the file `name`."""
    trained = load(file, name)
    return Marl(trained.agents, trained.known, scale_s(workload))
