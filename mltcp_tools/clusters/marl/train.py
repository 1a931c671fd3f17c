# SPDX-License-Identifier: BSD-2-Clause
"""Training the agents: PPO with one critic for all (MAPPO, Yu et al. 2022)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from mltcp_tools.clusters.interference import PairModel, fit_pairs
from mltcp_tools.clusters.marl.agents import Agents, Marl, Step, log_of
from mltcp_tools.clusters.pairs import Pairs
from mltcp_tools.clusters.rules import treatment
from mltcp_tools.clusters.simulate import ClusterSimulator
from mltcp_tools.clusters.topology import Topology, regular
from mltcp_tools.clusters.workload import Generated, Workload, generate

CLIP, EPOCHS, RATE, ENTROPY, LAMBDA = 0.2, 8, 5e-3, 0.002, 0.97
TREATMENT = "reno"
TEAM, WORTH = 0.2, 0.2
"""The weight of what all share besides a leaf's own gain; and what a pair must do more than its
host alone, as those who share start anew when they part, and a better guest may come."""


SMALL = regular(servers=8, gpus=4, leaf=2, oversubscription=4.0, spines=2, rate_bps=25e9)


@dataclass(frozen=True)
class Curriculum:
    """The curriculum of training: a cluster, and jobs of the pairs' models that crowd on it."""

    pairs: Pairs
    topology: Topology = SMALL
    jobs: int = 250
    hours: float = 0.5

    def workload(self, seed: int) -> Workload:
        """The workload of a seed; training uses seeds below 10^6, so larger ones are held out."""
        models = dict.fromkeys(sorted(self.pairs.models), 1.0)
        draws = Generated(self.jobs, 4.0, models, {1: 6, 2: 2, 4: 2}, self.hours)
        jobs = generate(self.topology, draws, seed, self.pairs.models)
        return Workload(self.topology, jobs, seed=seed, pairs=self.pairs)


def train(
    seed: int,
    rounds: int,
    curriculum: Curriculum,
    episodes: int = 2,
    said: Callable[[int], None] = lambda number: None,
) -> tuple[Agents, PairModel]:
    """Agents after so many rounds of so many episodes, and the pairs as they were predicted to
    them; the same seed gives the same. said: hears each round."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    agents, predicted = Agents(), fit_pairs(curriculum.pairs, seed)
    optimiser = torch.optim.Adam(agents.parameters(), lr=RATE)
    for number in range(rounds):
        said(number + 1)
        rollouts = []
        for episode in range(episodes):
            workload = curriculum.workload(seed * 1000 + (number * episodes + episode) % 900)
            driver = Marl(agents, predicted, workload, generator)
            ClusterSimulator(workload, driver, treatment(TREATMENT)).run()
            rollouts.append(driver.steps)
        improve(agents, optimiser, rollouts)
    return agents, predicted


def improve(
    agents: Agents, optimiser: torch.optim.Optimizer, rollouts: Sequence[list[Step]]
) -> None:
    """The clipped objective, by a ratio for each leaf that was asked, as MAPPO has one for each
    agent. An advantage is the leaf's own gain against the mean one, and TEAM times the generalised
    advantage of what all share, without discount, as an episode ends."""
    advantages: list[float] = []
    for rollout in rollouts:
        carried, later, back = 0.0, 0.0, []
        for step in reversed(rollout):
            carried = step.shared + later - step.value + LAMBDA * carried
            later = step.value
            back.append(carried)
        advantages += back[::-1]
    steps = [step for rollout in rollouts for step in rollout]
    seen = {name: torch.stack([step.seen[name] for step in steps]) for name in steps[0].seen}
    picks = torch.stack([step.picks for step in steps])
    before = torch.stack([step.logs for step in steps])
    asked = seen["present"].any(dim=-1).float()
    team = torch.tensor(advantages)
    target = team + torch.tensor([step.value for step in steps])
    team = ((team - team.mean()) / (team.std() + 1e-8)).unsqueeze(-1)
    own = torch.from_numpy(np.stack([step.gains for step in steps])).float()
    own = own - WORTH * (own > 0)
    mean = (own * asked).sum() / asked.sum()
    spread = (((own - mean) ** 2 * asked).sum() / asked.sum()).sqrt()
    gain = (own - mean) / (spread + 1e-8) + TEAM * team
    for _ in range(EPOCHS):
        logits, value = agents(seen)
        ratio = torch.exp(log_of(logits, picks) - before)
        clipped = torch.clamp(ratio, 1 - CLIP, 1 + CLIP)
        logs = torch.log_softmax(logits, dim=-1)
        entropy = -(logs.exp() * logs).sum(dim=-1)
        worth = torch.min(ratio * gain, clipped * gain) + ENTROPY * entropy
        loss = -(worth * asked).sum() / asked.sum() + 0.5 * ((value - target) ** 2).mean()
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(agents.parameters(), 0.5)
        optimiser.step()
