# SPDX-License-Identifier: BSD-2-Clause
"""Schedulers that learn: what they are asked, training by seed, and the comparison."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from mltcp_tools.clusters.interference import fit_pairs
from mltcp_tools.clusters.marl.agents import Agents, Marl, Step
from mltcp_tools.clusters.marl.evaluate import LARGE, drawn, evaluate
from mltcp_tools.clusters.marl.train import Curriculum, improve, train
from mltcp_tools.clusters.models import MODELS
from mltcp_tools.clusters.outcome import Outcome
from mltcp_tools.clusters.pairs import Pairs
from mltcp_tools.clusters.policies import policy
from mltcp_tools.clusters.policies.sharing import LOOK
from mltcp_tools.clusters.rules import treatment
from mltcp_tools.clusters.simulate import ClusterSimulator
from mltcp_tools.clusters.topology import regular
from mltcp_tools.clusters.view import Policy
from mltcp_tools.clusters.workload import Workload

CALM, LOUD = ("a3c", "lm", "resnet18"), ("vgg16", "bert", "cyclegan")
SLOW = {
    (one, other): 1.05 if one in CALM and other in CALM else 1.6 if one in CALM else 2.5
    for one, other in itertools.product(CALM + LOUD, repeat=2)
}
"""Calm jobs hardly feel each other; loud ones slow whom they are with, and each other most."""
PAIRS = Pairs({name: MODELS[name] for name in CALM + LOUD}, SLOW)
TINY = Curriculum(
    PAIRS,
    regular(servers=2, gpus=4, leaf=1, oversubscription=4.0, spines=1, rate_bps=25e9),
    jobs=30,
    hours=0.1,
)
KNOWN = fit_pairs(PAIRS, 1)


def run(workload: Workload, how: Policy) -> Outcome:
    """The outcome under a policy."""
    return ClusterSimulator(workload, how, treatment("reno")).run()


def test_completion_times_are_what_shared_rewards_add_up_to() -> None:
    workload = TINY.workload(1)
    driver = Marl(Agents(), KNOWN, workload, torch.Generator().manual_seed(1))
    jobs = run(workload, driver).jobs
    lost = -sum(step.shared for step in driver.steps)
    spent_s = sum(job.completion_s for job in jobs)
    work_s = sum(job.iterations * job.model.compute_s for job in workload.jobs)
    # Before the first question and after the last one nobody can change anything.
    assert 0.2 * spent_s < lost * work_s <= spent_s


def test_untrained_agents_leave_everything_to_the_plan() -> None:
    workload = TINY.workload(2)
    assert (
        run(workload, Marl(Agents(), KNOWN, workload)).jobs == run(workload, policy("elastic")).jobs
    )


def test_pairs_that_were_held_out_are_predicted_from_the_others() -> None:
    model = fit_pairs(PAIRS, 3)
    assert model.error < model.guessed / 2


def test_the_same_seed_trains_the_same_agents() -> None:
    weights = [train(seed, 2, TINY)[0].state_dict() for seed in (3, 3, 4)]
    same = [
        all(torch.equal(weights[0][name], other[name]) for name in other) for other in weights[1:]
    ]
    assert same == [True, False]


def test_training_changes_what_agents_prefer() -> None:
    """Towards what was rewarded: a pick that brought more than the mean is likelier after it."""
    torch.manual_seed(1)
    agents, workload = Agents(), TINY.workload(1)
    optimiser = torch.optim.Adam(agents.parameters(), lr=1e-3)
    driver = Marl(agents, KNOWN, workload, torch.Generator().manual_seed(1))
    run(workload, driver)
    seen = driver.steps[0].seen
    leaf = int(np.flatnonzero(seen["present"].any(dim=1).numpy())[0])
    alone = {name: each[None] for name, each in seen.items()}
    before, _ = agents(alone)
    leaves = len(seen["leaves"])
    logs = torch.full((leaves,), -1.0)
    steps = [
        Step(seen, torch.full((leaves,), pick), logs, 0.0, np.full(leaves, gain))
        for pick, gain in ((0, 1.0), (LOOK, 0.0)) * 4
    ]
    improve(agents, optimiser, [steps])
    after, _ = agents(alone)
    moved = (after - before)[0, leaf].detach()
    assert moved[0] > moved[LOOK]


def test_agents_learn_to_let_the_right_jobs_share() -> None:
    """They start without sharing, and end faster than that."""
    workloads = [TINY.workload(1_000_000 + n) for n in range(4)]
    rows = evaluate(workloads, {1: train(1, 12, TINY)})
    found = {row["policy"]: row["completion_s"] for row in rows}
    assert found["marl, seed 1"] < found["elastic"]


def test_policies_are_compared_with_default_on_unseen_workloads() -> None:
    first, second = drawn(2, TINY)
    assert first != second
    assert min(first.seed, second.seed) > 1_000_000
    assert first.topology == LARGE
    rows = evaluate([TINY.workload(7), TINY.workload(8)], {})
    found = {row["policy"]: row for row in rows}
    assert set(found) == {"predicted", "elastic", "fifo"}
    assert found["predicted"]["below"] == 0.0
    assert found["fifo"]["below_half"] > 0
    assert [row["completion_s"] for row in rows] == sorted(r["completion_s"] for r in rows)
