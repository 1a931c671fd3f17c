"""Training the agents: PPO with one critic and one reward for all (MAPPO, Yu et al. 2022)."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch

from mltcp_tools.clusters.interference import PairModel, fit_pairs, pairs_of
from mltcp_tools.clusters.marl.env import ClusterEnv
from mltcp_tools.clusters.marl.features import Observation
from mltcp_tools.clusters.marl.network import Agents, batch
from mltcp_tools.clusters.pairs import Pairs
from mltcp_tools.clusters.policies.plan import Elastic
from mltcp_tools.clusters.rules import treatment
from mltcp_tools.clusters.simulate import ClusterSimulator
from mltcp_tools.clusters.topology import Topology, regular
from mltcp_tools.clusters.workload import Generated, Workload, generate
from mltcp_tools.errors import UsageError

CLIP, EPOCHS, RATE, ENTROPY, LAMBDA = 0.2, 8, 5e-3, 0.002, 0.97
TEAM = 0.2
"""How much what all share counts besides a leaf's own gain."""


@dataclass(frozen=True)
class Curriculum:
    """The curriculum of training: pairs, a cluster, how jobs of the pairs' models are drawn, and
    how links are shared.
    """

    pairs: Pairs
    topology: Topology = field(
        default_factory=lambda: regular(
            servers=8, gpus=4, leaf=2, oversubscription=4.0, spines=2, rate_bps=25e9
        )
    )
    jobs: int = 250
    load: float = 4.0
    hours: float = 0.5
    gpus: Mapping[int, float] = field(default_factory=lambda: {1: 6, 2: 2, 4: 2})
    treatment: str = "reno"

    def workload(self, seed: int) -> Workload:
        """The workload of a seed; training uses seeds below 10^6, so larger ones are held out."""
        models = dict.fromkeys(sorted(self.pairs.models), 1.0)
        draws = Generated(self.jobs, self.load, models, self.gpus, self.hours)
        jobs = generate(self.topology, draws, seed, self.pairs.models)
        return Workload(self.topology, jobs, seed=seed, pairs=self.pairs)


@dataclass(frozen=True)
class Trained:
    """Agents, predicted slow-downs, and the learning curve: mean completion time per round, while
    exploring, over that of `elastic` on the same workloads."""

    agents: Agents
    known: PairModel
    curve: list[float]


@dataclass
class Rollout:
    """The steps of an episode: what was seen, picked, and came of it; a list of each."""

    seen: list[Observation] = field(default_factory=list)
    picks: list[Any] = field(default_factory=list)
    logs: list[Any] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    shared: list[float] = field(default_factory=list)
    gains: list[Any] = field(default_factory=list)

    def add(self, *step: Any) -> None:
        """A step: one of each."""
        for each, what in zip(vars(self).values(), step, strict=True):
            each.append(what)


def act(agents: Agents, seen: Observation, generator: Any | None) -> tuple[Any, Any, float]:
    """Return what each leaf picks, the logarithm of its probability, and the value; the
    likeliest without a generator.
    """
    with torch.no_grad():
        logits, value = agents(batch([seen]))
        picks = _pick(logits, generator)
        logs = _log(logits, picks)
    return picks[0].numpy(), logs[0], float(value[0])


def _pick(logits: Any, generator: Any | None) -> Any:
    if generator is None:
        return logits.argmax(dim=-1)
    flat = torch.softmax(logits, dim=-1).reshape(-1, logits.shape[-1])
    return torch.multinomial(flat, 1, generator=generator).reshape(logits.shape[:-1])


def _log(logits: Any, picked: Any) -> Any:
    return torch.log_softmax(logits, dim=-1).gather(-1, picked.unsqueeze(-1)).squeeze(-1)


def train(
    seed: int,
    rounds: int,
    curriculum: Curriculum,
    episodes: int = 2,
    said: Callable[[int, float], None] = lambda number, ratio: None,
) -> Trained:
    """Agents after so many rounds of so many episodes; the same seed gives the same."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    agents = Agents()
    optimiser = torch.optim.Adam(agents.parameters(), lr=RATE)
    known = fit_pairs(curriculum.pairs, seed)
    curve = []
    for number in range(rounds):
        rollouts, ratios = [], []
        for episode in range(episodes):
            workload = curriculum.workload(seed * 1000 + (number * episodes + episode) % 900)
            rollout, completion_s = _rollout(
                agents, ClusterEnv(workload, curriculum.treatment, known), generator
            )
            rollouts.append(rollout)
            plain = ClusterSimulator(workload, Elastic(), treatment(curriculum.treatment)).run()
            ratios.append(completion_s / float(plain.summary()["completion_mean_s"]))
        improve(agents, optimiser, rollouts)
        curve.append(float(np.mean(ratios)))
        said(number, curve[-1])
    return Trained(agents, known, curve)


def _rollout(agents: Agents, env: ClusterEnv, generator: Any) -> tuple[Rollout, float]:
    rollout = Rollout()
    env.reset()
    while env.agents:
        seen = env.observation
        picks, logs, value = act(agents, seen, generator)
        actions = {f"leaf-{n}": int(pick) for n, pick in enumerate(picks)}
        env.step(actions)
        rollout.add(seen, picks, logs, value, env.shared, env.gains)
    return rollout, float(env.outcome.summary()["completion_mean_s"])


def improve(agents: Agents, optimiser: Any, rollouts: list[Rollout]) -> None:
    """The clipped objective, by a ratio for each leaf that was asked, as MAPPO has one for each
    agent. An advantage is the leaf's own gain against the mean one, and TEAM times the generalised
    advantage of what all share, without discount, as an episode ends."""
    advantages, returns = [], []
    for rollout in rollouts:
        carried, later = 0.0, 0.0
        back = []
        for reward, value in zip(rollout.shared[::-1], rollout.values[::-1], strict=True):
            carried = reward + later - value + LAMBDA * carried
            later = value
            back.append(carried)
        back.reverse()
        advantages += back
        returns += [a + v for a, v in zip(back, rollout.values, strict=True)]
    seen = batch([each for rollout in rollouts for each in rollout.seen])
    picks = torch.from_numpy(np.stack([p for rollout in rollouts for p in rollout.picks]))
    before = torch.stack([log for rollout in rollouts for log in rollout.logs])
    asked = seen["present"].any(dim=-1).float()
    team = torch.tensor(advantages)
    team = ((team - team.mean()) / (team.std() + 1e-8)).unsqueeze(-1)
    own = torch.from_numpy(np.stack([g for rollout in rollouts for g in rollout.gains])).float()
    mean = (own * asked).sum() / asked.sum()
    spread = (((own - mean) ** 2 * asked).sum() / asked.sum()).sqrt()
    gain = (own - mean) / (spread + 1e-8) + TEAM * team
    target = torch.tensor(returns)
    for _ in range(EPOCHS):
        logits, value = agents(seen)
        ratio = torch.exp(_log(logits, picks) - before)
        clipped = torch.clamp(ratio, 1 - CLIP, 1 + CLIP)
        worth = torch.min(ratio * gain, clipped * gain) + ENTROPY * _entropy(logits)
        loss = -(worth * asked).sum() / asked.sum() + 0.5 * ((value - target) ** 2).mean()
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(agents.parameters(), 0.5)
        optimiser.step()


def _entropy(logits: Any) -> Any:
    logs = torch.log_softmax(logits, dim=-1)
    return -(logs.exp() * logs).sum(dim=-1)


def save(trained: Trained, file: Path) -> None:
    """A checkpoint: weights, predicted slow-downs, and the learning curve."""
    state = {"agents": trained.agents.state_dict(), "curve": trained.curve}
    part = file.with_suffix(".part")
    torch.save(state | {"pairs": trained.known.state()}, part)
    part.replace(file)


def load(file: Path | BinaryIO, name: str) -> Trained:
    """A checkpoint; only tensors, names and numbers are read, no code. A UsageError calls the file
    `name`."""
    try:
        state = torch.load(file, weights_only=True)
        agents = Agents()
        agents.load_state_dict(state["agents"])
        curve = [float(ratio) for ratio in state["curve"]]
        return Trained(agents, pairs_of(state["pairs"]), curve)
    except _NO_CHECKPOINT:
        raise UsageError(f"{name} is not a checkpoint; `mltcp cluster marl` makes those.") from None


_NO_CHECKPOINT = (
    pickle.UnpicklingError,
    OSError,
    RuntimeError,
    ValueError,
    LookupError,
    TypeError,
    EOFError,
)
"""What torch raises, a file that can't be read, and parts of a state that are missing or wrong."""
