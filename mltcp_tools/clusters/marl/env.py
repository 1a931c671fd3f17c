"""A cluster as a PettingZoo ParallelEnv: a dispatcher weighs jobs, leaves bid for them."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

from mltcp_tools.clusters.marl.features import (
    BIDS,
    CANDIDATES,
    GLOBAL,
    JOB,
    LEAF,
    SERVER,
    WEIGHTS,
    Interference,
    Observation,
    candidates,
    observe,
)
from mltcp_tools.clusters.outcome import Outcome
from mltcp_tools.clusters.policies.goodput import speed
from mltcp_tools.clusters.policies.plan import ROUND_S, decide
from mltcp_tools.clusters.rules import treatment
from mltcp_tools.clusters.simulate import ClusterSimulator
from mltcp_tools.clusters.view import Decision, View
from mltcp_tools.clusters.workload import Workload


class Driven:
    """A policy whose decisions come from the environment."""

    name = "marl"
    round_s: float | None = ROUND_S

    def decide(self, view: View) -> Decision:
        """Not asked: the environment drives the simulator itself."""
        raise NotImplementedError


class ClusterEnv(ParallelEnv):  # type: ignore[misc]
    """One step is one decision: at an arrival, an end, or in a round of ROUND_S.

    The reward is shared: minus the time that all jobs under way spent since the step before, plus
    PROGRESS times what they are predicted to have done meanwhile, over all jobs' lone time. What
    they do adds up to the same whoever decides; it tells at once what a decision is worth.

    Agents are `dispatcher`, whose action is a weight (WEIGHTS) for each of the CANDIDATES shortest
    jobs, and `leaf-0`, `leaf-1`, …, whose action is a bid of 0 to BIDS - 1: who bids more has jobs
    placed first.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "mltcp-cluster-v2"}
    PROGRESS = 0.5

    def __init__(self, workload: Workload, how: str, interference: Interference) -> None:
        self._workload, self._how, self._interference = workload, how, interference
        leaves = workload.topology.leaves
        self.possible_agents = ["dispatcher", *(f"leaf-{n}" for n in range(leaves))]
        self.agents: list[str] = []
        sizes = {
            "servers": (leaves, workload.topology.leaf, SERVER),
            "leaves": (leaves, LEAF),
            "jobs": (CANDIDATES, JOB),
            "whole": (GLOBAL,),
        }
        boxes = {name: spaces.Box(-np.inf, np.inf, shape) for name, shape in sizes.items()}
        self._sees = {
            agent: spaces.Dict(boxes | {"present": spaces.MultiBinary(CANDIDATES)})
            for agent in self.possible_agents
        }
        self._does: dict[str, Any] = {
            agent: spaces.Discrete(BIDS) for agent in self.possible_agents[1:]
        }
        self._does["dispatcher"] = spaces.MultiDiscrete([len(WEIGHTS)] * CANDIDATES)
        self._scale_s = scale_s(workload)

    def observation_space(self, agent: str) -> Any:
        """All agents see the whole graph."""
        return self._sees[agent]

    def action_space(self, agent: str) -> Any:
        """Weights of jobs for the dispatcher, a bid for a leaf."""
        return self._does[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """From the start; the workload is the seed."""
        self._simulator = ClusterSimulator(self._workload, Driven(), treatment(self._how))
        self._asking: Generator[View, Decision, None] = self._simulator.decisions()
        self._view: View | None = next(self._asking)
        self.agents = list(self.possible_agents)
        self._look()
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
        """Divide the GPUs anew, and go on until something happens."""
        assert self._view is not None
        bids = np.array([int(actions[agent]) for agent in self.possible_agents[1:]])
        weights = {
            state.number: WEIGHTS[int(each)]
            for state, each in zip(self._chosen, actions["dispatcher"], strict=False)
        }
        decision = decide(self._view, weights, bids, self._interference.slowdown)
        reward = self._pass(decision)
        over = self._view is None
        agents = list(self.agents)
        if over:
            self.agents = []
        return (
            self._seen(agents),
            dict.fromkeys(agents, reward),
            dict.fromkeys(agents, over),
            dict.fromkeys(agents, False),
            {agent: {} for agent in agents},
        )

    def _look(self) -> None:
        assert self._view is not None
        self._chosen = candidates(self._view)
        self._observation = observe(self._view, self._chosen, self._scale_s, self._interference)

    def _pass(self, decision: Decision) -> float:
        """On to the next decision; the reward of the time until then."""
        before = self._view
        assert before is not None
        states = {s.number: s for s in (*before.running, *before.waiting)}
        predicted = sum(
            speed(before, states[number], sum(places.values()))
            / self._interference.slowdown(before, states[number], places)
            for number, places in decision.items()
        )
        try:
            self._view = self._asking.send(decision)
        except StopIteration:
            self._view = None
            return 0.0
        passed_s = self._view.now_s - before.now_s
        self._look()
        lost_s = (len(states) - self.PROGRESS * predicted) * passed_s
        return -lost_s / (self._scale_s * len(self._workload.jobs))

    def _seen(self, agents: list[str] | None = None) -> dict[str, Any]:
        seen = vars(self._observation) | {"present": self._observation.present.astype(np.int8)}
        return dict.fromkeys(self.agents if agents is None else agents, seen)


def scale_s(workload: Workload) -> float:
    """A typical job's length, in seconds."""
    return float(np.mean([job.iterations * job.model.compute_s for job in workload.jobs]))
