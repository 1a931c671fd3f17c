"""A cluster as a PettingZoo ParallelEnv: leaves bid for jobs, a dispatcher orders them."""

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
    Interference,
    Observation,
    candidates,
    observe,
    place_by_bids,
)
from mltcp_tools.clusters.models import Allocation
from mltcp_tools.clusters.rules import treatment
from mltcp_tools.clusters.simulate import ClusterSimulator, Outcome
from mltcp_tools.clusters.view import Decision, JobState, View
from mltcp_tools.clusters.workload import Workload


class Driven:
    """A policy whose decisions come from the environment."""

    name = "marl"
    round_s: float | None = None

    def decide(self, view: View) -> Decision:
        """Not asked: the environment drives the simulator itself."""
        raise NotImplementedError


class ClusterEnv(ParallelEnv):  # type: ignore[misc]
    """One step is one job placed. Rewards are shared: minus the time that jobs lost since the step
    before, by waiting or by predicted interference, over all jobs' lone time.

    Agents are `dispatcher`, whose action is one of the CANDIDATES shortest waiting jobs or, last,
    to wait, and `leaf-0`, `leaf-1`, …, whose action is a bid of 0 to BIDS - 1.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "mltcp-cluster-v1"}

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
            agent: spaces.Dict(boxes | {"possible": spaces.MultiBinary(CANDIDATES)})
            for agent in self.possible_agents
        }
        self._does = {
            agent: spaces.Discrete(CANDIDATES + 1 if agent == "dispatcher" else BIDS)
            for agent in self.possible_agents
        }

    def observation_space(self, agent: str) -> Any:
        """All agents see the whole graph."""
        return self._sees[agent]

    def action_space(self, agent: str) -> Any:
        """A job for the dispatcher, a bid for a leaf."""
        return self._does[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """From the start; the workload is the seed."""
        self._simulator = ClusterSimulator(self._workload, Driven(), treatment(self._how))
        self._asking: Generator[View, Decision, None] = self._simulator.decisions()
        self._view: View | None = next(self._asking)
        self._scale_s = float(
            np.mean([job.iterations * job.model.compute_s for job in self._workload.jobs])
        )
        self._slow: dict[int, float] = {}
        self.agents = list(self.possible_agents)
        self._begin()
        self._advance()
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
        self, actions: dict[str, int]
    ) -> tuple[dict[str, Any], dict[str, float], dict[str, bool], dict[str, bool], dict[str, Any]]:
        """Place a job, or wait until something happens."""
        assert self._view is not None
        choice = int(actions["dispatcher"])
        bids = np.array([int(actions[agent]) for agent in self.possible_agents[1:]])
        reward = 0.0
        if not self._placed:
            choice = min(choice, len(self._chosen) - 1)  # nothing else would ever happen
        if choice < len(self._chosen):
            state = self._chosen[choice]
            self._place(state, place_by_bids(self._view, self._free, state.job.gpus, bids))
        else:
            reward = self._pass()
        reward += self._advance()
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

    def _begin(self) -> None:
        assert self._view is not None
        self._free = self._view.free.copy()
        self._placed: dict[int, Allocation] = {
            state.number: state.allocation for state in self._view.running
        }
        self._look()

    def _look(self) -> None:
        assert self._view is not None
        self._chosen = candidates(self._view, self._free, self._placed)
        self._observation = observe(self._view, self._free, self._chosen, self._scale_s)

    def _place(self, state: JobState, allocation: Allocation) -> None:
        assert self._view is not None
        self._slow[state.number] = self._interference.slowdown(self._view, state, allocation)
        self._placed[state.number] = allocation
        for server, gpus in allocation.items():
            self._free[server] -= gpus
        self._look()

    def _advance(self) -> float:
        """On to the next instant at which a job could be placed; the time lost until then."""
        reward = 0.0
        while self._view is not None and not self._chosen:
            reward += self._pass()
        return reward

    def _pass(self) -> float:
        assert self._view is not None
        before_s, waiting = self._view.now_s, len(self._view.waiting) - self._started()
        lost = waiting + sum(1 - 1 / self._slow.get(number, 1.0) for number in self._placed)
        try:
            self._view = self._asking.send(self._placed)
        except StopIteration:
            self._view = None
            self._chosen = []
            return 0.0
        passed_s = self._view.now_s - before_s
        self._begin()
        return -lost * passed_s / (self._scale_s * len(self._workload.jobs))

    def _started(self) -> int:
        assert self._view is not None
        return sum(state.number in self._placed for state in self._view.waiting)

    def _seen(self, agents: list[str] | None = None) -> dict[str, Any]:
        seen = vars(self._observation) | {"possible": self._observation.possible.astype(np.int8)}
        return dict.fromkeys(self.agents if agents is None else agents, seen)
