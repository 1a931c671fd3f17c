"""Schedulers that learn: the environment, training by seed, and checkpoints."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("pettingzoo")

import torch
from pettingzoo.test import parallel_api_test

from mltcp_tools.clusters.marl.env import ClusterEnv, scale_s
from mltcp_tools.clusters.marl.evaluate import RIVALS, Result, drawn, evaluate
from mltcp_tools.clusters.marl.features import CANDIDATES, USUAL, Interference
from mltcp_tools.clusters.marl.network import Agents, batch
from mltcp_tools.clusters.marl.policy import Marl
from mltcp_tools.clusters.marl.train import (
    Curriculum,
    Rollout,
    Trained,
    fit_interference,
    improve,
    load,
    save,
    train,
)
from mltcp_tools.clusters.rules import treatment
from mltcp_tools.clusters.simulate import ClusterSimulator
from mltcp_tools.clusters.workload import Generated

TINY = Curriculum(draws=Generated(jobs=8, load=1.0, hours=0.02, gpus={2: 1, 4: 1, 8: 1}))


def test_the_environment_is_a_parallel_env() -> None:
    parallel_api_test(ClusterEnv(TINY.workload(1), "reno", Interference()), num_cycles=40)


def test_completion_times_are_what_rewards_add_up_to() -> None:
    """Without predicted progress, which is a constant, and without predicted interference."""
    env = ClusterEnv(TINY.workload(1), "reno", Interference())
    env.PROGRESS = 0.0
    env.reset()
    lost = 0.0
    usual = dict.fromkeys(env.agents, 0) | {"dispatcher": [USUAL] * CANDIDATES}
    while env.agents:
        lost -= env.step(usual)[1]["dispatcher"]
    jobs = env.outcome.jobs
    # What passes from the last decision on isn't rewarded any more; nobody can change it.
    spent_s = sum(job.completion_s for job in jobs)
    last_s = jobs[-1].end_s - max(jobs[-2].end_s, jobs[-1].start_s)
    assert spent_s - last_s - 300 <= lost * scale_s(TINY.workload(1)) * len(jobs) <= spent_s


def test_interference_is_found_from_outcomes() -> None:
    model, error = fit_interference(Curriculum(), range(900, 902))
    assert model.weights.max() > 0
    assert error < 2


def test_the_same_seed_trains_the_same_agents() -> None:
    curves = [train(3, rounds=2, episodes=2, curriculum=TINY).curve for _ in range(2)]
    assert curves[0] == curves[1]
    assert curves[0] != train(4, rounds=2, episodes=2, curriculum=TINY).curve


def test_a_checkpoint_decides_as_what_was_saved(tmp_path: Path) -> None:
    trained = train(1, rounds=1, episodes=1, curriculum=TINY)
    save(trained, tmp_path / "a.pt")
    again = load(tmp_path / "a.pt")
    assert again.interference.weights == pytest.approx(trained.interference.weights)
    assert again.curve == trained.curve
    workload = TINY.workload(5)
    outcomes = [
        ClusterSimulator(
            workload, Marl(each.agents, each.interference, 60.0), treatment("reno")
        ).run()
        for each in (trained, again)
    ]
    assert outcomes[0].jobs == outcomes[1].jobs
    assert len(outcomes[0].jobs) == 8


def test_training_changes_what_agents_prefer() -> None:
    """Towards what was rewarded: an action that was better than expected is likelier after it."""
    torch.manual_seed(1)
    agents = Agents()
    optimiser = torch.optim.Adam(agents.parameters(), lr=1e-3)
    env = ClusterEnv(TINY.workload(1), "reno", Interference())
    env.reset()
    seen = env.observation
    good, bad = np.full(CANDIDATES, 3), np.full(CANDIDATES, 1)
    bids = np.zeros(len(env.agents) - 1, dtype=np.int64)
    before, _, _ = agents(batch([seen]))
    rollout = Rollout()
    for classes, reward in ((good, 1.0), (bad, -1.0)) * 4:
        rollout.add(seen, classes, bids, torch.full((CANDIDATES + len(bids),), -1.0), 0.0, reward)
    improve(agents, optimiser, [rollout])
    after, _, _ = agents(batch([seen]))
    place = int(np.flatnonzero(seen.present)[0])
    moved = (after - before)[0, place].detach()
    assert moved[3] > moved[1]


def test_untrained_agents_beat_every_rival_where_jobs_fill_narrow_links() -> None:
    """What the plan is for, on workloads that nothing was fitted to."""
    curriculum = Curriculum()
    result = evaluate(
        "drawn", drawn(2), {1: Trained(Agents(), Interference(), [])}, treatment("reno")
    )
    assert set(result.rivals_s) == set(RIVALS)
    assert result.rivals_s[result.best] == min(result.rivals_s.values())
    assert result.untrained_s < result.rivals_s[result.best]
    assert result.learned_s == {1: result.untrained_s}
    assert curriculum.workload(1) != curriculum.workload(2)


def test_gains_have_intervals_over_seeds_and_over_workloads() -> None:
    result = Result(
        "drawn",
        {1: [70.0, 90.0], 2: [60.0, 80.0]},
        [75.0, 75.0],
        {"a": [90.0, 110.0], "b": [120.0, 120.0]},
    )
    assert result.best == "a"
    mean, half = result.gain_over_seeds()
    assert mean == pytest.approx(0.25)
    # Gains of 0.2 and 0.3; Student's t with one degree of freedom.
    assert half == pytest.approx(12.71 * 0.05, rel=1e-3)
    mean, half = result.gain_over_workloads()
    assert mean == pytest.approx(1 - (65 / 90 + 85 / 110) / 2)
    assert half == pytest.approx(12.71 * (85 / 110 - 65 / 90) / 2, rel=1e-3)
