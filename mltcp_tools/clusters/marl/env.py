"""A cluster as a PettingZoo ParallelEnv: an agent per leaf says which jobs share its GPUs."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

from mltcp_tools.clusters.interference import PairModel
from mltcp_tools.clusters.marl.features import (
    GLOBAL,
    LEAF,
    PAIR,
    SERVER,
    Observation,
    Question,
    observe,
)
from mltcp_tools.clusters.outcome import Outcome
from mltcp_tools.clusters.policies.plan import ROUND_S
from mltcp_tools.clusters.policies.sharing import LOOK, Settled, settle
from mltcp_tools.clusters.rules import treatment
from mltcp_tools.clusters.simulate import ClusterSimulator
from mltcp_tools.clusters.view import Decision, JobState, View
from mltcp_tools.clusters.workload import Workload


class Meeting:
    """The leaves' agents settle one decision: in each turn, every leaf with a host that has no
    guest names one of its candidates or declines; where two name the same, the pair that is
    predicted to do more together gets it, and the other leaf is asked again."""

    def __init__(self, view: View, known: PairModel) -> None:
        self.settled: Settled = settle(view)
        self._view, self._known = view, known
        self._declined: set[int] = set()
        self.asked = self._ask()

    def _ask(self) -> dict[int, Question]:
        asked: dict[int, Question] = {}
        for host in self.settled.open:
            (server,) = self.settled.decided[host.number]
            leaf = self._view.topology.leaf_of(server)
            if leaf in asked or host.number in self._declined:
                continue
            guests = self.settled.guests(host)
            if guests:
                asked[leaf] = Question(host, guests)
        return asked

    def answer(self, picks: dict[int, int]) -> dict[int, float]:
        """Leaf -> place of the candidate it names; LOOK, or any beyond its candidates, declines.
        What each new pair is predicted to do more than its host alone, in speeds."""
        named: dict[int, tuple[float, int, Question, JobState]] = {}
        for leaf, question in self.asked.items():
            pick = picks[leaf]
            if pick >= len(question.guests):
                self._declined.add(question.host.number)
                continue
            guest = question.guests[pick]
            slow = self._known.slowdowns(question.host, guest)
            more = 1 / slow[0] + 1 / slow[1] - 1
            if guest.number not in named or named[guest.number][0] < more:
                named[guest.number] = more, leaf, question, guest
        for _, _, question, guest in named.values():
            self.settled.pair(question.host, guest)
        self.asked = self._ask()
        return {leaf: more for more, leaf, _, _ in named.values()}

    def observation(self, scale_s: float) -> Observation:
        """Return the agents' present view."""
        return observe(self._view, self.settled, self.asked, scale_s, self._known)


class Driven:
    """A policy whose decisions come from the environment."""

    name = "marl"
    round_s: float | None = ROUND_S

    def decide(self, view: View) -> Decision:
        """Not asked: the environment drives the simulator itself."""
        raise NotImplementedError


class ClusterEnv(ParallelEnv):  # type: ignore[misc]
    """One step is one turn of a Meeting; time passes when no leaf has anything left to say.

    All share a reward: minus the time that all jobs under way spent since the step before, over all
    jobs' lone time. A leaf that pairs has in addition what the pair is predicted to do more than
    its host alone, less WORTH: those who share start anew when they part, and a better guest may
    come.

    Agents are `leaf-0`, `leaf-1`, …; an action is the number of a candidate, or LOOK for none.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "mltcp-cluster-v4"}
    WORTH = 0.2

    def __init__(self, workload: Workload, how: str, known: PairModel) -> None:
        self._workload, self._how, self._known = workload, how, known
        leaves = workload.topology.leaves
        self.possible_agents = [f"leaf-{n}" for n in range(leaves)]
        self.agents: list[str] = []
        self.shared, self.gains = 0.0, np.zeros(leaves)
        """Of the last step: the reward that all share, and each leaf's own, shape (leaves,)."""
        sizes = {
            "servers": (leaves, workload.topology.leaf, SERVER),
            "leaves": (leaves, LEAF),
            "pairs": (LOOK, PAIR),
            "whole": (GLOBAL,),
        }
        boxes = {name: spaces.Box(-np.inf, np.inf, shape) for name, shape in sizes.items()}
        self._sees = {
            agent: spaces.Dict(boxes | {"present": spaces.MultiBinary(LOOK)})
            for agent in self.possible_agents
        }
        self._does = {agent: spaces.Discrete(LOOK + 1) for agent in self.possible_agents}
        self._scale_s = scale_s(workload)

    def observation_space(self, agent: str) -> Any:
        """The whole graph, and the agent's own pairs."""
        return self._sees[agent]

    def action_space(self, agent: str) -> Any:
        """A candidate, or none."""
        return self._does[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """From the start to the first question; the workload is the seed."""
        self._simulator = ClusterSimulator(self._workload, Driven(), treatment(self._how))
        self._asking: Generator[View, Decision, None] = self._simulator.decisions()
        self.agents = list(self.possible_agents)
        self._meet(next(self._asking))
        self._pass()
        return self._seen(), {agent: {} for agent in self.agents}

    @property
    def outcome(self) -> Outcome:
        """Of the simulation so far."""
        return self._simulator.outcome

    @property
    def observation(self) -> Observation:
        """As the agents see it, in one piece."""
        return self._observation

    def step(
        self, actions: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, float], dict[str, bool], dict[str, bool], dict[str, Any]]:
        """Pair, and go on to the next question."""
        found = self._meeting.answer({n: int(actions[f"leaf-{n}"]) for n in self._meeting.asked})
        self.shared = self._pass()
        self.gains = np.zeros(len(self.possible_agents))
        for leaf, more in found.items():
            self.gains[leaf] = more - self.WORTH
        agents = list(self.agents)
        over = self._over
        if over:
            self.agents = []
        return (
            self._seen(agents),
            {agent: self.shared + float(self.gains[n]) for n, agent in enumerate(agents)},
            dict.fromkeys(agents, over),
            dict.fromkeys(agents, False),
            {agent: {} for agent in agents},
        )

    def _meet(self, view: View) -> None:
        self._over = False
        self._view = view
        self._meeting = Meeting(view, self._known)

    def _pass(self) -> float:
        """On to the next question, or the end; the reward of the time until then."""
        reward = 0.0
        while not self._meeting.asked and not self._over:
            before, decision = self._view, self._meeting.settled.decided
            under_way = len(before.running) + len(before.waiting)
            try:
                self._meet(self._asking.send(decision))
            except StopIteration:
                self._over = True
                break
            lost_s = under_way * (self._view.now_s - before.now_s)
            reward -= lost_s / (self._scale_s * len(self._workload.jobs))
        self._observation = self._meeting.observation(self._scale_s)
        return reward

    def _seen(self, agents: list[str] | None = None) -> dict[str, Any]:
        whole = self._observation
        seen = {}
        for agent in self.agents if agents is None else agents:
            number = self.possible_agents.index(agent)
            seen[agent] = vars(whole) | {
                "pairs": whole.pairs[number],
                "present": whole.present[number].astype(np.int8),
            }
        return seen


def scale_s(workload: Workload) -> float:
    """A typical job's length, in seconds."""
    return float(np.mean([job.iterations * job.model.compute_s for job in workload.jobs]))
