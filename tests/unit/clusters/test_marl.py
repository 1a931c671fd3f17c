"""Schedulers that learn: the environment, training by seed, and checkpoints."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("pettingzoo")

import torch
from matplotlib.figure import Figure
from pettingzoo.test import parallel_api_test

from mltcp_tools.clusters.interference import fit_pairs
from mltcp_tools.clusters.marl import evaluate as evaluating
from mltcp_tools.clusters.marl.env import ClusterEnv, scale_s
from mltcp_tools.clusters.marl.evaluate import (
    FRESH,
    HELD_OUT,
    RIVALS,
    Result,
    draw_curves,
    drawn,
    evaluate,
)
from mltcp_tools.clusters.marl.network import Agents, batch
from mltcp_tools.clusters.marl.policy import Marl
from mltcp_tools.clusters.marl.train import (
    Curriculum,
    Rollout,
    Trained,
    improve,
    load,
    save,
    train,
)
from mltcp_tools.clusters.models import MODELS
from mltcp_tools.clusters.pairs import Pairs
from mltcp_tools.clusters.policies.plan import Elastic
from mltcp_tools.clusters.policies.sharing import LOOK
from mltcp_tools.clusters.rules import treatment
from mltcp_tools.clusters.simulate import ClusterSimulator
from mltcp_tools.clusters.topology import regular
from mltcp_tools.errors import UsageError

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


def test_the_environment_is_a_parallel_env() -> None:
    parallel_api_test(ClusterEnv(TINY.workload(1), "reno", KNOWN), num_cycles=40)


def test_completion_times_are_what_shared_rewards_add_up_to() -> None:
    env = ClusterEnv(TINY.workload(1), "reno", KNOWN)
    env.reset()
    first_s = env.outcome.makespan_s
    lost = 0.0
    while env.agents:
        env.step(dict.fromkeys(env.agents, 0))
        lost -= env.shared
    jobs = env.outcome.jobs
    spent_s = sum(job.completion_s for job in jobs)
    # Before the first question and after the last one nobody can change anything.
    assert first_s < spent_s
    assert 0.2 * spent_s < lost * scale_s(TINY.workload(1)) * len(jobs) <= spent_s


def test_agents_that_decline_leave_everything_to_the_plan() -> None:
    env = ClusterEnv(TINY.workload(2), "reno", KNOWN)
    env.reset()
    while env.agents:
        env.step(dict.fromkeys(env.agents, LOOK))
        assert not env.gains.any()
    plain = ClusterSimulator(TINY.workload(2), Elastic(), treatment("reno")).run()
    assert env.outcome.jobs == plain.jobs


def test_pairs_that_were_held_out_are_predicted_from_the_others() -> None:
    model = fit_pairs(PAIRS, 3)
    assert model.error < model.guessed / 2


def test_the_same_seed_trains_the_same_agents() -> None:
    curves = [train(3, 2, TINY).curve for _ in range(2)]
    assert curves[0] == curves[1]
    assert curves[0] != train(4, 2, TINY).curve


def test_a_checkpoint_decides_as_what_was_saved(tmp_path: Path) -> None:
    trained = train(1, 1, TINY, episodes=1)
    save(trained, tmp_path / "a.pt")
    again = load(tmp_path / "a.pt", "a.pt")
    assert again.known.slow == pytest.approx(trained.known.slow)
    assert again.curve == trained.curve
    workload = TINY.workload(5)
    outcomes = [
        ClusterSimulator(workload, Marl(each.agents, each.known, 60.0), treatment("reno")).run()
        for each in (trained, again)
    ]
    assert outcomes[0].jobs == outcomes[1].jobs
    assert len(outcomes[0].jobs) == 30


@pytest.mark.parametrize(
    ("part", "wrong"),
    [
        (None, b"no checkpoint"),
        ("agents", {}),
        ("curve", ["slow"]),
        ("pairs", {"names": []}),
        ("slow", [[1.0]]),
        ("slow", (-KNOWN.slow).tolist()),
    ],
)
def test_a_file_that_is_no_checkpoint_is_refused(
    tmp_path: Path, part: str | None, wrong: object
) -> None:
    file = tmp_path / "a.pt"
    save(Trained(Agents(), KNOWN, [1.0]), file)
    assert load(file, "a.pt").curve == [1.0]
    if part is None:
        assert isinstance(wrong, bytes)
        file.write_bytes(wrong)
    else:
        state = torch.load(file, weights_only=True)
        (state if part in state else state["pairs"])[part] = wrong
        torch.save(state, file)
    with pytest.raises(UsageError, match=r"a\.pt is not a checkpoint"):
        load(file, "a.pt")
    with pytest.raises(UsageError, match=r"b\.pt is not a checkpoint"):
        load(tmp_path / "b.pt", "b.pt")


def test_learning_curves_are_over_whole_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(evaluating, "png", lambda figure: drawn.append(figure) or b"")
    for rounds in (2, 7, 20):
        draw_curves({1: [1.0] * rounds})
        ticks = drawn[-1].axes[0].get_xticks()
        assert all(tick == round(tick) for tick in ticks)


def test_training_changes_what_agents_prefer() -> None:
    """Towards what was rewarded: a pick that brought more than the mean is likelier after it."""
    torch.manual_seed(1)
    agents = Agents()
    optimiser = torch.optim.Adam(agents.parameters(), lr=1e-3)
    env = ClusterEnv(TINY.workload(1), "reno", KNOWN)
    env.reset()
    seen = env.observation
    leaf = int(np.flatnonzero(seen.present.any(axis=1))[0])
    before, _ = agents(batch([seen]))
    rollout = Rollout()
    leaves = len(env.agents)
    logs = torch.full((leaves,), -1.0)
    for pick, gain in ((0, 1.0), (LOOK, -1.0)) * 4:
        rollout.add(seen, np.full(leaves, pick), logs, 0.0, 0.0, np.full(leaves, gain))
    improve(agents, optimiser, [rollout])
    after, _ = agents(batch([seen]))
    moved = (after - before)[0, leaf].detach()
    assert moved[0] > moved[LOOK]


def test_agents_learn_to_let_the_right_jobs_share() -> None:
    """They start without sharing, and end faster than that and than sharing with anyone."""
    trained = train(1, 12, TINY)
    result = evaluate(
        "drawn",
        [TINY.workload(1_000_000 + n) for n in range(4)],
        {1: trained},
        treatment("reno"),
        ("elastic", "shared"),
    )
    assert result.untrained_s == result.rivals_s["elastic"]
    assert result.learned_s[1] < min(result.rivals_s.values())


def test_every_rival_is_compared_on_workloads_that_training_never_sees() -> None:
    held_out = drawn(2, TINY)
    assert held_out[0] != held_out[1]
    assert drawn(1, TINY, FRESH + 1) == held_out[1:]
    assert not {HELD_OUT + n for n in range(FRESH)} & {each.seed for each in held_out}
    assert held_out[0].topology.total_gpus == 64
    trained = {1: Trained(Agents(), KNOWN, [])}
    result = evaluate("drawn", [TINY.workload(7)], trained, treatment("reno"))
    assert set(result.rivals_s) == set(RIVALS)
    assert result.rivals_s[result.best] == min(result.rivals_s.values())


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
