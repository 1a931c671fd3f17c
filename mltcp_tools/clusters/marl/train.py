"""Training the agents: PPO with one critic and one reward for all (MAPPO, Yu et al. 2022)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mltcp_tools.clusters.marl.env import ClusterEnv
from mltcp_tools.clusters.marl.features import Interference, Observation
from mltcp_tools.clusters.marl.network import Agents, batch
from mltcp_tools.clusters.models import Allocation
from mltcp_tools.clusters.policies.placing import scatter
from mltcp_tools.clusters.rules import treatment
from mltcp_tools.clusters.simulate import ClusterSimulator
from mltcp_tools.clusters.topology import Topology
from mltcp_tools.clusters.view import Ints, JobState, View
from mltcp_tools.clusters.workload import Generated, Workload, generate

CLIP, EPOCHS, RATE, ENTROPY, LAMBDA = 0.2, 6, 2e-3, 0.001, 0.95


@dataclass(frozen=True)
class Curriculum:
    """What is trained on: a cluster, how jobs are drawn, and how links are shared."""

    topology: Topology = field(
        default_factory=lambda: Topology(
            servers=16, gpus=4, leaf=4, oversubscription=4.0, spines=2, rate_bps=25e9
        )
    )
    draws: Generated = field(
        default_factory=lambda: Generated(
            jobs=60,
            load=1.2,
            hours=0.5,
            models={"vgg16": 1, "bert": 1, "resnet50": 2, "gpt2": 1},
            gpus={1: 2, 2: 1, 4: 2, 6: 1, 8: 2, 12: 1, 16: 1},
        )
    )
    treatment: str = "reno"

    def workload(self, seed: int) -> Workload:
        """The workload of a seed; training uses seeds below 10^6, so larger ones are held out."""
        return Workload(self.topology, generate(self.topology, self.draws, seed), seed=seed)


@dataclass(frozen=True)
class Trained:
    """Agents, the interference model, and the learning curve: mean completion time per round, while
    exploring, over that of `goodput` on the same workloads."""

    agents: Agents
    interference: Interference
    curve: list[float]


@dataclass
class Rollout:
    """The steps of an episode: what was seen, done, and came of it; a list of each."""

    seen: list[Observation] = field(default_factory=list)
    classes: list[Any] = field(default_factory=list)
    bids: list[Any] = field(default_factory=list)
    logs: list[Any] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)

    def add(
        self, seen: Observation, classes: Any, bids: Any, logs: Any, value: float, reward: float
    ) -> None:
        """A step."""
        for each, what in zip(
            vars(self).values(), (seen, classes, bids, logs, value, reward), strict=True
        ):
            each.append(what)


def act(agents: Agents, seen: Observation, generator: Any | None) -> tuple[Any, Any, Any, float]:
    """Numbers of the jobs' weights, the leaves' bids, the logarithm of the probability of each of
    these actions, and the value; the likeliest without a generator."""
    with torch.no_grad():
        weights, bids, value = agents(batch([seen]))
        classes, bid = _pick(weights, generator), _pick(bids, generator)
        logs = torch.cat([_log(weights, classes), _log(bids, bid)], dim=-1)
    return classes[0].numpy(), bid[0].numpy(), logs[0], float(value[0])


def _pick(logits: Any, generator: Any | None) -> Any:
    if generator is None:
        return logits.argmax(dim=-1)
    flat = torch.softmax(logits, dim=-1).reshape(-1, logits.shape[-1])
    return torch.multinomial(flat, 1, generator=generator).reshape(logits.shape[:-1])


def _log(logits: Any, picked: Any) -> Any:
    return torch.log_softmax(logits, dim=-1).gather(-1, picked.unsqueeze(-1)).squeeze(-1)


def fit_interference(curriculum: Curriculum, seeds: range) -> tuple[Interference, float]:
    """The interference model from random placements' outcomes, and its mean absolute error."""
    features, slowdowns = [], []
    for seed in seeds:
        workload = curriculum.workload(seed)
        policy = _Noting(seed)
        outcome = ClusterSimulator(workload, policy, treatment(curriculum.treatment)).run()
        for job in outcome.jobs:
            features.append(policy.noted[job.name])
            slowdowns.append(job.slowdown)
    model = Interference()
    return model, model.fit(features, slowdowns)


class _Noting:
    """First come first served at random places, with the features of each noted."""

    name = "noting"
    round_s: float | None = None

    def __init__(self, seed: int) -> None:
        self._scatter = scatter(seed)
        self.noted: dict[str, Any] = {}

    def decide(self, view: View) -> dict[int, Allocation]:
        """As Fifo with backfilling."""
        from mltcp_tools.clusters.policies.orders import start_in_order

        def place(view: View, free: Ints, state: JobState, gpus: int) -> Allocation:
            allocation = self._scatter(view, free, state, gpus)
            self.noted[state.job.name] = Interference.features(view, state, allocation)
            return allocation

        kept = {state.number: state.allocation for state in view.running}
        return kept | start_in_order(view, view.free.copy(), view.waiting, place, backfill=True)


def train(
    seed: int,
    rounds: int = 16,
    episodes: int = 3,
    curriculum: Curriculum | None = None,
    said: Callable[[int, float], None] = lambda number, ratio: None,
) -> Trained:
    """Agents after so many rounds of so many episodes; the same seed gives the same."""
    from mltcp_tools.clusters.policies import policy

    curriculum = curriculum or Curriculum()
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    agents = Agents()
    optimiser = torch.optim.Adam(agents.parameters(), lr=RATE)
    interference, _ = fit_interference(curriculum, range(seed * 1000 + 900, seed * 1000 + 906))
    curve = []
    for number in range(rounds):
        rollouts, ratios = [], []
        for episode in range(episodes):
            workload = curriculum.workload(seed * 1000 + (number * episodes + episode) % 900)
            rollout, completion_s = _rollout(
                agents, ClusterEnv(workload, curriculum.treatment, interference), generator
            )
            rollouts.append(rollout)
            plain = ClusterSimulator(
                workload, policy("goodput"), treatment(curriculum.treatment)
            ).run()
            ratios.append(completion_s / float(plain.summary()["completion_mean_s"]))
        improve(agents, optimiser, rollouts)
        curve.append(float(np.mean(ratios)))
        said(number, curve[-1])
    return Trained(agents, interference, curve)


def _rollout(agents: Agents, env: ClusterEnv, generator: Any) -> tuple[Rollout, float]:
    rollout = Rollout()
    env.reset()
    while env.agents:
        seen = env.observation
        classes, bids, logs, value = act(agents, seen, generator)
        actions = {"dispatcher": classes} | {f"leaf-{n}": int(b) for n, b in enumerate(bids)}
        _, rewards, _, _, _ = env.step(actions)
        rollout.add(seen, classes, bids, logs, value, rewards["dispatcher"])
    return rollout, float(env.outcome.summary()["completion_mean_s"])


def improve(agents: Agents, optimiser: Any, rollouts: list[Rollout]) -> None:
    """Generalised advantages without discount, as an episode ends; the clipped objective, by a
    ratio for each action of its own, as MAPPO has one for each agent."""
    advantages, returns = [], []
    for rollout in rollouts:
        carried, later = 0.0, 0.0
        own = []
        for reward, value in zip(rollout.rewards[::-1], rollout.values[::-1], strict=True):
            carried = reward + later - value + LAMBDA * carried
            later = value
            own.append(carried)
        own.reverse()
        advantages += own
        returns += [a + v for a, v in zip(own, rollout.values, strict=True)]
    seen = batch([each for rollout in rollouts for each in rollout.seen])
    classes = torch.from_numpy(np.stack([c for rollout in rollouts for c in rollout.classes]))
    bids = torch.from_numpy(np.stack([b for rollout in rollouts for b in rollout.bids]))
    before = torch.stack([log for rollout in rollouts for log in rollout.logs])
    counts = torch.cat([seen["present"].float(), torch.ones(bids.shape)], dim=-1)
    gain = torch.tensor(advantages)
    gain = ((gain - gain.mean()) / (gain.std() + 1e-8)).unsqueeze(-1)
    target = torch.tensor(returns)
    for _ in range(EPOCHS):
        weights, bid, value = agents(seen)
        logs = torch.cat([_log(weights, classes), _log(bid, bids)], dim=-1)
        ratio = torch.exp(logs - before)
        clipped = torch.clamp(ratio, 1 - CLIP, 1 + CLIP)
        entropy = torch.cat([_entropy(weights), _entropy(bid)], dim=-1)
        own = torch.min(ratio * gain, clipped * gain) + ENTROPY * entropy
        loss = -(own * counts).sum() / counts.sum() + 0.5 * ((value - target) ** 2).mean()
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(agents.parameters(), 0.5)
        optimiser.step()


def _entropy(logits: Any) -> Any:
    logs = torch.log_softmax(logits, dim=-1)
    return -(logs.exp() * logs).sum(dim=-1)


def save(trained: Trained, file: Path) -> None:
    """A checkpoint: weights, the interference model's, and the learning curve."""
    state = {"agents": trained.agents.state_dict(), "curve": trained.curve}
    part = file.with_suffix(".part")
    torch.save(state | {"interference": trained.interference.weights.tolist()}, part)
    part.replace(file)


def load(file: Path) -> Trained:
    """A checkpoint; only tensors and numbers are read, no code."""
    state = torch.load(file, weights_only=True)
    agents = Agents()
    agents.load_state_dict(state["agents"])
    return Trained(agents, Interference(state["interference"]), state["curve"])
