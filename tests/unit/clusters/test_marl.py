"""Schedulers that learn: the environment, training by seed, and checkpoints."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("pettingzoo")

from pettingzoo.test import parallel_api_test

from mltcp_tools.clusters.marl.env import ClusterEnv
from mltcp_tools.clusters.marl.evaluate import train_and_evaluate
from mltcp_tools.clusters.marl.features import Interference
from mltcp_tools.clusters.marl.policy import Marl
from mltcp_tools.clusters.marl.train import Curriculum, fit_interference, load, save, train
from mltcp_tools.clusters.rules import treatment
from mltcp_tools.clusters.simulate import simulate_cluster
from mltcp_tools.clusters.workload import Generated

TINY = Curriculum(draws=Generated(jobs=8, load=1.0, hours=0.02, gpus={2: 1, 4: 1, 8: 1}))


def test_the_environment_is_a_parallel_env() -> None:
    parallel_api_test(ClusterEnv(TINY.workload(1), "reno", Interference()), num_cycles=40)


def test_what_is_lost_is_what_completion_exceeds_lone_times_by() -> None:
    """Without predicted interference, rewards add up to the waiting."""
    env = ClusterEnv(TINY.workload(1), "reno", Interference())
    env.reset()
    lost = 0.0
    while env.agents:
        actions = dict.fromkeys(env.agents, 0)
        lost -= env.step(actions)[1]["dispatcher"]
    workload = TINY.workload(1)
    scale_s = np.mean([job.iterations * job.model.compute_s for job in workload.jobs])
    waited_s = sum(job.start_s - job.arrival_s for job in env.outcome.jobs)
    assert lost == pytest.approx(waited_s / (scale_s * len(workload.jobs)), abs=1e-6)


def test_interference_is_found_from_outcomes() -> None:
    model, error = fit_interference(Curriculum(), range(900, 903))
    assert model.weights.max() > 0
    assert error < 2


def test_the_same_seed_trains_the_same_agents(tmp_path: Path) -> None:
    curves = [train(3, rounds=2, episodes=2, curriculum=TINY)[2] for _ in range(2)]
    assert curves[0] == curves[1]
    assert curves[0] != train(4, rounds=2, episodes=2, curriculum=TINY)[2]


def test_a_checkpoint_decides_as_what_was_saved(tmp_path: Path) -> None:
    agents, interference, curve = train(1, rounds=1, episodes=1, curriculum=TINY)
    save(agents, interference, curve, tmp_path / "a.pt")
    loaded, again = load(tmp_path / "a.pt")
    assert again.weights == pytest.approx(interference.weights)
    workload = TINY.workload(5)
    outcomes = [
        simulate_cluster(workload, Marl(each, 60.0), treatment("reno")) for each in (agents, loaded)
    ]
    assert outcomes[0].jobs == outcomes[1].jobs
    assert len(outcomes[0].jobs) == 8


def test_training_improves_on_where_it_began() -> None:
    curve = train(1, rounds=12, episodes=4, curriculum=Curriculum())[2]
    assert np.mean(curve[-3:]) < np.mean(curve[:3])


def test_seeds_are_compared_with_every_rival(tmp_path: Path) -> None:
    result = train_and_evaluate((1, 2), 1, tmp_path, held_out=2, curriculum=TINY)
    assert set(result.learned_s) == {1, 2}
    assert result.rivals_s[result.best] == min(result.rivals_s.values())
    mean, low, high = result.gains()
    assert low <= mean <= high
