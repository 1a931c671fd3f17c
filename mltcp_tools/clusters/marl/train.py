# SPDX-License-Identifier: BSD-2-Clause
"""Training the schedulers, and what they save of `fifo`'s completion times.

They first imitate `fifo`, and then learn from rewards by PPO with one critic for all (MAPPO, Yu et
al. 2022). The networks that did best on validation workloads are kept.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from mltcp_tools.base.errors import UsageError
from mltcp_tools.clusters.intervals import interval
from mltcp_tools.clusters.marl.agents import Agents, Graph, Marl, Step
from mltcp_tools.clusters.marl.interference import TREATMENT, Interference, fit
from mltcp_tools.clusters.policies import policy
from mltcp_tools.clusters.rules import treatment
from mltcp_tools.clusters.simulate import ClusterSimulator
from mltcp_tools.clusters.view import Policy
from mltcp_tools.clusters.workload import Workload

CLIP, EPOCHS, ENTROPY, DISCOUNT, LAMBDA = 0.2, 4, 0.001, 0.97, 0.9
IMITATION_RATE, RATE = 3e-3, 3e-4
EPISODES, BATCH = 4, 64
IMITATED = 50
"""Rounds in which the schedulers imitate `fifo`."""
VALIDATION, HELD_OUT = 1_000_000, 2_000_000
"""First seeds of workloads that choose among networks, and of those that judge them; training uses
smaller ones."""
VALIDATED, EVERY = 8, 10
"""Number of the former, and the rounds between two looks at them."""
RIVAL = "fifo"

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
    imitated: int = IMITATED,
    rate: float = RATE,
) -> tuple[Agents, Interference]:
    """Networks after so many rounds of EPISODES each; the same seed gives the same."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    interference, agents = fit(draw(seed), seed), Agents()
    optimiser = torch.optim.Adam(agents.parameters())
    best, best_s = copy.deepcopy(agents), float("inf")
    for number in range(imitated + rounds):
        imitates, rollouts = number < imitated, []
        part = number / imitated if imitates else (number - imitated) / rounds
        for group in optimiser.param_groups:
            group["lr"] = (IMITATION_RATE if imitates else rate) * (1 - part)
        for episode in range(EPISODES):
            workload = draw(seed * 10_000 + number * EPISODES + episode)
            driver = Marl(agents, interference, workload, generator, imitates)
            run(workload, driver)
            rollouts.append(driver.steps)
        if not any(rollouts):
            raise UsageError("one server leaves nothing to schedule; use several.")
        improve(agents, driver.graph, optimiser, rollouts, generator, imitates)
        done = number + 1
        if done in (imitated, imitated + rounds) or (not imitates and number % EVERY == 0):
            mean_s = np.mean(
                [
                    run(each, Marl(agents, interference, each))["completion_mean_s"]
                    for each in map(draw, range(VALIDATION, VALIDATION + VALIDATED))
                ]
            )
            said(f"training {seed}, round {done}: completion {mean_s:.1f} s")
            if mean_s < best_s:
                best, best_s = copy.deepcopy(agents), float(mean_s)
    return best, interference


def improve(
    agents: Agents,
    graph: Graph,
    optimiser: torch.optim.Optimizer,
    rollouts: Sequence[Sequence[Step]],
    generator: torch.Generator,
    imitates: bool = False,
) -> None:
    """Make the steps' actions likelier: all where they are imitated, else those with an advantage,
    by the clipped objective."""
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
            worth = log if imitates else torch.min(ratio * gains[some], clipped * gains[some])
            entropy = -(logs.exp() * logs).sum(dim=1)
            loss = ((values - targets[some]) ** 2).mean() / 2 - (worth + ENTROPY * entropy).mean()
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(agents.parameters(), 0.5)
            optimiser.step()


def evaluate(
    draw: Draw, count: int, trained: Mapping[int, tuple[Agents, Interference]]
) -> list[dict[str, Any]]:
    """A row for RIVAL and for each training, on the same `count` held-out workloads: the means of
    `completion_s`, `p99_s` and `slowdown`; `saved`, the share of RIVAL's completion times that it
    saves, with half of its 95 % interval over workloads, `half`."""
    workloads = [draw(HELD_OUT + each) for each in range(count)]
    found = {RIVAL: [run(each, policy(RIVAL)) for each in workloads]}
    for seed, (agents, known) in trained.items():
        found[f"marl, training {seed}"] = [run(w, Marl(agents, known, w)) for w in workloads]
    rows = []
    for name, runs in found.items():
        both = zip(runs, found[RIVAL], strict=True)
        key = "completion_mean_s"
        saved, half = interval([1 - own[key] / other[key] for own, other in both])
        row: dict[str, Any] = {"policy": name, "saved": saved, "half": half}
        fields = {"completion_s": key, "p99_s": "completion_p99_s", "slowdown": "slowdown_mean"}
        rows.append(row | {k: float(np.mean([r[f] for r in runs])) for k, f in fields.items()})
    return rows
