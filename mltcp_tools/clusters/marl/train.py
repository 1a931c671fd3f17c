# SPDX-License-Identifier: BSD-2-Clause
"""Training the schedulers, and runs that judge them.

They begin as `fifo`, and learn from rewards where to deviate, by PPO with one critic for all
(MAPPO, Yu et al. 2022). The networks that did best on validation workloads are kept.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from mltcp_tools.base.errors import UsageError
from mltcp_tools.clusters.marl.agents import Agents, Graph, Marl, Predicted, Step
from mltcp_tools.clusters.marl.interference import TREATMENT, Interference, fit
from mltcp_tools.clusters.policies import policy
from mltcp_tools.clusters.rules import treatment
from mltcp_tools.clusters.simulate import ClusterSimulator
from mltcp_tools.clusters.view import Policy
from mltcp_tools.clusters.workload import Workload

CLIP, EPOCHS, ENTROPY, DISCOUNT, LAMBDA = 0.2, 4, 0.001, 0.97, 0.9
RATE = 3e-3
EPISODES, BATCH = 4, 64
VALIDATION, HELD_OUT = 1_000_000, 2_000_000
"""First seeds of workloads that choose among networks, and of those that judge them; training uses
smaller ones."""
VALIDATED, EVERY = 8, 10
"""Number of the former, and the rounds between two looks at them."""

Draw = Callable[[int], Workload]
"""Seed -> workload."""


def run(workload: Workload, driver: Policy) -> dict[str, Any]:
    """The summary of the workload under the policy."""
    return ClusterSimulator(workload, driver, treatment(TREATMENT)).run().summary()


def train(
    draw: Draw,
    seed: int,
    rounds: int,
    said: Callable[[str], None] = lambda what: None,
) -> tuple[Agents, Interference]:
    """Networks after so many rounds of EPISODES each; the same seed gives the same."""
    first = draw(seed)
    if first.topology.servers == 1:
        raise UsageError("one server leaves nothing to schedule; use several.")
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    interference, agents = fit(first, seed), Agents()
    optimiser = torch.optim.Adam(agents.parameters())
    validation = [draw(VALIDATION + each) for each in range(VALIDATED)]
    best, best_s = copy.deepcopy(agents), float("inf")
    for number in range(rounds + 1):
        if number % EVERY == 0 or number == rounds:
            runs = [run(each, Marl(agents, interference, each)) for each in validation]
            mean_s = float(np.mean([each["completion_mean_s"] for each in runs]))
            said(f"training {seed}, round {number}: completion {mean_s:.1f} s")
            if mean_s < best_s:
                best, best_s = copy.deepcopy(agents), mean_s
        if number < rounds:
            for group in optimiser.param_groups:
                group["lr"] = RATE * (1 - number / rounds)
            drivers = []
            for episode in range(EPISODES):
                workload = draw(seed * 10_000 + number * EPISODES + episode)
                drivers.append(Marl(agents, interference, workload, generator))
                run(workload, drivers[-1])
            rollouts = [each.steps for each in drivers]
            if any(rollouts):
                improve(agents, drivers[0].graph, optimiser, rollouts, generator)
    return best, interference


def improve(
    agents: Agents,
    graph: Graph,
    optimiser: torch.optim.Optimizer,
    rollouts: Sequence[Sequence[Step]],
    generator: torch.Generator,
) -> None:
    """Make the steps' actions likelier that have an advantage, by the clipped objective."""
    advantages: list[float] = []
    for rollout in rollouts:
        carried, later, back = 0.0, 0.0, []
        for step in reversed(rollout):
            carried = step.reward + DISCOUNT * (later + LAMBDA * carried) - step.value
            later = step.value
            back.append(carried)
        advantages += back[::-1]
    steps = [step for rollout in rollouts for step in rollout]
    seen = {name: torch.stack([step.seen[name] for step in steps]) for name in steps[0].seen}
    actions = torch.tensor([step.action for step in steps])
    before = torch.tensor([step.log for step in steps])
    gains = torch.tensor(advantages)
    targets = gains + torch.tensor([step.value for step in steps])
    gains = (gains - gains.mean()) / (gains.std(correction=0) + 1e-8)
    for _ in range(EPOCHS):
        for some in torch.randperm(len(steps), generator=generator).split(BATCH):
            logits, values = agents(graph, {name: each[some] for name, each in seen.items()})
            logs = torch.log_softmax(logits, dim=-1)
            log = logs.gather(1, actions[some, None]).squeeze(1)
            ratio = torch.exp(log - before[some])
            clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
            worth = torch.min(ratio * gains[some], clipped * gains[some])
            entropy = -(logs.exp() * logs).sum(dim=1)
            loss = ((values - targets[some]) ** 2).mean() / 2 - (worth + ENTROPY * entropy).mean()
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(agents.parameters(), 0.5)
            optimiser.step()


def evaluate(draw: Draw, count: int, agents: Agents, known: Interference) -> list[dict[str, Any]]:
    """Summaries of runs of the same `count` held-out workloads, under `marl`, and then under its
    rivals `fifo` (with backfilling) and `predicted`."""
    workloads = [draw(HELD_OUT + each) for each in range(count)]
    return [
        *(run(each, Marl(agents, known, each)) for each in workloads),
        *(run(each, policy("fifo")) for each in workloads),
        *(run(each, Predicted(agents, known, each)) for each in workloads),
    ]
