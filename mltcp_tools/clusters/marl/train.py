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
from mltcp_tools.clusters.simulate import simulate_cluster
from mltcp_tools.clusters.topology import Topology
from mltcp_tools.clusters.view import Ints, JobState, View
from mltcp_tools.clusters.workload import Generated, Workload, generate

CLIP, EPOCHS, RATE, ENTROPY, LAMBDA = 0.2, 6, 3e-3, 0.001, 0.97


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
            jobs=40,
            load=1.2,
            hours=0.1,
            models={"vgg16": 1, "bert": 1, "resnet50": 2, "gpt2": 1},
            gpus={1: 2, 2: 1, 4: 2, 6: 1, 8: 2, 12: 1, 16: 1},
        )
    )
    treatment: str = "reno"

    def workload(self, seed: int) -> Workload:
        """The workload of a seed; training uses seeds below 10^6, so larger ones are held out."""
        return Workload(self.topology, generate(self.topology, self.draws, seed), seed=seed)


@dataclass
class _Rollout:
    seen: list[Observation] = field(default_factory=list)
    choices: list[int] = field(default_factory=list)
    bids: list[Any] = field(default_factory=list)
    logs: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)


def act(agents: Agents, seen: Observation, generator: Any | None) -> tuple[int, Any, float, float]:
    """Choice, bids, their log-probability, and the value; the likeliest without a generator."""
    with torch.no_grad():
        tensors = batch([seen])
        logits, state, value = agents(tensors)
        choice = _pick(logits, generator)
        bid_logits = agents.bids(state, tensors["jobs"], choice)
        bids = _pick(bid_logits, generator)
        log = _log(logits, choice) + _log(bid_logits, bids).sum(dim=-1)
    return int(choice[0]), bids[0].numpy(), float(log[0]), float(value[0])


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
        outcome = simulate_cluster(workload, policy, treatment(curriculum.treatment))
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
    rounds: int = 40,
    episodes: int = 6,
    curriculum: Curriculum | None = None,
    said: Callable[[int, float], None] = lambda number, completion_s: None,
) -> tuple[Agents, Interference, list[float]]:
    """Agents, the interference model, and the learning curve: mean completion time per round over
    that of the shortest job first, packed, on the same workloads. The same seed gives the same."""
    from mltcp_tools.clusters.policies import policy

    curriculum = curriculum or Curriculum()
    torch.set_num_threads(1)
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
            plain = simulate_cluster(workload, policy("srtf"), treatment(curriculum.treatment))
            ratios.append(completion_s / float(plain.summary()["completion_mean_s"]))
        _improve(agents, optimiser, rollouts)
        curve.append(float(np.mean(ratios)))
        said(number, curve[-1])
    return agents, interference, curve


def _rollout(agents: Agents, env: ClusterEnv, generator: Any) -> tuple[_Rollout, float]:
    rollout = _Rollout()
    env.reset()
    while env.agents:
        seen = env.observation
        choice, bids, log, value = act(agents, seen, generator)
        actions = {"dispatcher": choice} | {f"leaf-{n}": int(b) for n, b in enumerate(bids)}
        _, rewards, _, _, _ = env.step(actions)
        rollout.seen.append(seen)
        rollout.choices.append(choice)
        rollout.bids.append(bids)
        rollout.logs.append(log)
        rollout.values.append(value)
        rollout.rewards.append(rewards["dispatcher"])
    return rollout, float(env.outcome.summary()["completion_mean_s"])


def _improve(agents: Agents, optimiser: Any, rollouts: list[_Rollout]) -> None:
    """Generalised advantages without discount, as an episode ends; the clipped objective."""
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
    choice = torch.tensor([c for rollout in rollouts for c in rollout.choices])
    bids = torch.from_numpy(np.stack([b for rollout in rollouts for b in rollout.bids]))
    before = torch.tensor([log for rollout in rollouts for log in rollout.logs])
    gain = torch.tensor(advantages)
    gain = (gain - gain.mean()) / (gain.std() + 1e-8)
    target = torch.tensor(returns)
    for _ in range(EPOCHS):
        logits, state, value = agents(seen)
        bid_logits = agents.bids(state, seen["jobs"], choice)
        ratio = torch.exp(_log(logits, choice) + _log(bid_logits, bids).sum(dim=-1) - before)
        clipped = torch.clamp(ratio, 1 - CLIP, 1 + CLIP)
        loss = -torch.min(ratio * gain, clipped * gain).mean()
        loss = loss + 0.5 * ((value - target) ** 2).mean()
        loss = loss - ENTROPY * (_entropy(logits).mean() + _entropy(bid_logits).mean())
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(agents.parameters(), 0.5)
        optimiser.step()


def _entropy(logits: Any) -> Any:
    logs = torch.log_softmax(logits, dim=-1)
    return -(logs.exp() * logs).sum(dim=-1)


def save(agents: Agents, interference: Interference, curve: list[float], file: Path) -> None:
    """A checkpoint: weights, the interference model's, and the learning curve."""
    state = {"agents": agents.state_dict(), "interference": interference.weights.tolist()}
    torch.save(state | {"curve": curve}, file)


def load(file: Path) -> tuple[Agents, Interference]:
    """A checkpoint; only tensors and numbers are read, no code."""
    state = torch.load(file, weights_only=True)
    agents = Agents()
    agents.load_state_dict(state["agents"])
    return agents, Interference(state["interference"])
