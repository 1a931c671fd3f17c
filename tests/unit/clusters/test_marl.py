# SPDX-License-Identifier: BSD-2-Clause
"""Schedulers that learn where jobs go: their choices, their rewards and their training."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from support.mistakes import refused

pytest.importorskip("torch", reason="torch, of the extra marl, isn't installed")

import torch

from mltcp_tools.cli.main import main
from mltcp_tools.clusters.marl.agents import Agents, Graph, Marl, Predicted, Step
from mltcp_tools.clusters.marl.interference import Interference, fit, shares
from mltcp_tools.clusters.marl.train import (
    HELD_OUT,
    evaluate,
    improve,
    run,
    train,
)
from mltcp_tools.clusters.models import Model
from mltcp_tools.clusters.policies import policy
from mltcp_tools.clusters.policies.orders import Fifo
from mltcp_tools.clusters.policies.placing import shuffled
from mltcp_tools.clusters.rules import treatment
from mltcp_tools.clusters.simulate import ClusterSimulator
from mltcp_tools.clusters.topology import regular
from mltcp_tools.clusters.view import Decision, View
from mltcp_tools.clusters.workload import ClusterJob, Generated, Workload, generate

SMALL = regular(servers=8, gpus=4, leaf=2, oversubscription=4.0, spines=2, rate_bps=10e9)


def drawn(seed: int, jobs: int = 25) -> Workload:
    """Jobs of parts of a server to five servers, which crowd."""
    draws = Generated(jobs, 1.5, {"vgg16": 1, "bert": 1}, {1: 1, 3: 1, 4: 1, 8: 2, 18: 1}, 0.05)
    return Workload(SMALL, generate(SMALL, draws, seed), seed=seed)


CHATTY = Model("chatty", 0.05, 100_000_000)


def pairs(seed: int) -> Workload:
    """Jobs of two servers of one GPU each, two leaves of two servers, and uplinks so slow that
    the best place is always below one leaf."""
    topology = regular(servers=4, gpus=1, leaf=2, oversubscription=20.0, spines=1, rate_bps=10e9)
    draw = np.random.default_rng(seed)
    arrivals = np.cumsum(draw.exponential(60, 20)).tolist()
    jobs = (ClusterJob(f"j{n}", CHATTY, 2, 200, at, seed=n) for n, at in enumerate(arrivals))
    return Workload(topology, tuple(jobs), seed=seed)


class Watched(Marl):
    """Checks each decision."""

    decided = 0

    def decide(self, view: View) -> Decision:
        decision = super().decide(view)
        free = view.topology.gpus_of.copy()
        for number, allocation in decision.items():
            for server, gpus in allocation.items():
                free[server] -= gpus
            state = next(s for s in (*view.waiting, *view.running) if s.number == number)
            assert sum(allocation.values()) == state.job.gpus
            self.decided += len(allocation) > 1
        assert (free >= 0).all()
        return decision


def untrained(workload: Workload, seed: int, kind: type[Marl] = Marl) -> Marl:
    """Untrained schedulers that draw their choices."""
    torch.manual_seed(seed)
    return kind(Agents(), Interference(), workload, torch.Generator().manual_seed(seed))


def drawing(workload: Workload, seed: int, kind: type[Marl] = Marl) -> Marl:
    """Those, after they ran the workload."""
    driver = untrained(workload, seed, kind)
    run(workload, driver)
    return driver


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_drawn_choices_are_always_possible(seed: int) -> None:
    driver = drawing(drawn(seed), seed, Watched)
    assert isinstance(driver, Watched)
    assert driver.decided > 5
    leaf = SMALL.leaf_index
    for step in driver.steps:
        possible, at = step.seen["possible"].numpy(), int(step.seen["at"])
        assert possible[step.action]
        own, others = possible[: len(leaf)], possible[len(leaf) :]
        assert (leaf[np.flatnonzero(own)] == at).all()
        assert not others[at]


def test_logits_cover_servers_and_leaves_and_mask_the_rest() -> None:
    driver = drawing(drawn(1), 1)
    some = driver.steps[:7]
    seen = {name: torch.stack([step.seen[name] for step in some]) for name in some[0].seen}
    logits, values = Agents()(driver.graph, seen)
    assert logits.shape == (7, SMALL.servers + SMALL.leaves)
    assert values.shape == (7,)
    assert (logits[~seen["possible"]] < -1e8).all()
    assert torch.isfinite(logits[seen["possible"]]).all()


def test_a_graph_has_every_server_switch_and_direction() -> None:
    graph = Graph(SMALL)
    assert graph.nodes == 8 + 4 + 2
    assert len(graph.source) == len(SMALL.rates_bps)
    both = set(zip(graph.source.tolist(), graph.target.tolist(), strict=True))
    assert {(b, a) for a, b in both} == both


def test_embeddings_see_load_on_links_of_other_leaves() -> None:
    driver = drawing(drawn(1), 1)
    seen = {name: each[None] for name, each in driver.steps[0].seen.items()}
    changed = seen | {"links": seen["links"].clone()}
    changed["links"][0, -1] += 1.0
    agents = Agents()
    torch.nn.init.ones_(agents.passed[-1].weight)
    assert not torch.equal(agents(driver.graph, seen)[0], agents(driver.graph, changed)[0])


def test_untrained_schedulers_place_all_jobs_as_fifo() -> None:
    for seed in (1, 2):
        workload = drawn(seed)
        own = run(workload, Marl(Agents(), Interference(), workload))
        assert own == run(workload, policy("fifo")) | {"policy": "marl"}


def test_the_places_of_fifo_have_no_reward(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mltcp_tools.clusters.marl.agents.USUAL", 1e6)
    driver = drawing(drawn(1), 1)
    assert len(driver.steps) > 10
    assert {step.reward for step in driver.steps} == {0.0}


def test_a_place_that_delays_others_is_rewarded_less() -> None:
    """Two jobs across all leaves' uplinks, beside two jobs where `fifo` has them."""
    workload = pairs(1)
    known, rewards = fit(workload, 1), []
    for first, second in (((0, 2), (1, 3)), ((0, 1), (2, 3))):
        driver = Marl(Agents(), known, workload, torch.Generator().manual_seed(1))
        driver._choose = partial(lambda left, *_: left.pop(0), [*first, *second])  # type: ignore[method-assign]
        driver.steps = [Step({}, 0, 0.0, 0.0)]
        jobs = tuple(replace(job, arrival_s=0.0) for job in workload.jobs[:2])
        run(replace(workload, jobs=jobs), driver)
        rewards.append(driver.steps[0].reward)
    assert rewards[0] < rewards[1] - 1
    assert rewards[1] == pytest.approx(0, abs=1e-6)


def test_interference_is_predicted_for_unseen_placements() -> None:
    model = fit(drawn(1), 1)
    assert model.error < model.guess / 2


def test_jobs_on_disjoint_links_do_not_slow_each_other() -> None:
    model, job = fit(drawn(1), 1), drawn(1).jobs[0]
    inside = shares(SMALL, job, {0: 1}, 0)
    first, apart = (shares(SMALL, job, {s: 1, s + 1: 1}, 0) for s in (0, 4))
    assert model.slowdowns([inside, inside]).tolist() == [1.0, 1.0]
    assert model.slowdowns([first, apart])[0] == pytest.approx(model.slowdowns([first])[0])
    assert model.slowdowns([first, first])[0] > model.slowdowns([first])[0] + 0.05


def test_the_same_seed_trains_the_same_networks() -> None:
    weights = [train(drawn, seed, 1)[0].state_dict() for seed in (3, 3, 4)]
    same = [all(torch.equal(weights[0][n], other[n]) for n in other) for other in weights[1:]]
    assert same == [True, False]


def test_better_choices_become_likelier() -> None:
    driver = drawing(drawn(1), 1)
    step = next(s for s in driver.steps if int(s.seen["possible"].sum()) > 2)
    good, bad = np.flatnonzero(step.seen["possible"].numpy())[[0, -1]].tolist()
    agents = Agents()
    optimiser = torch.optim.Adam(agents.parameters(), lr=1e-2)
    alone = {name: each[None] for name, each in step.seen.items()}
    before = torch.log_softmax(agents(driver.graph, alone)[0][0], 0).detach()
    rollouts = [
        [Step(step.seen, action, float(before[action]), 0.0, reward)]
        for action, reward in ((good, 1.0), (bad, -1.0)) * 8
    ]
    generator = torch.Generator().manual_seed(1)
    improve(agents, driver.graph, optimiser, rollouts, generator)
    after = torch.log_softmax(agents(driver.graph, alone)[0][0], 0).detach()
    assert after[good] - after[bad] > before[good] - before[bad] + 0.1


def test_training_finds_the_known_best_places(monkeypatch: pytest.MonkeyPatch) -> None:
    # Without what fifo, which is best here, would do.
    monkeypatch.setattr("mltcp_tools.clusters.marl.agents.USUAL", 0.0)

    def inside(driver: Marl, workload: Workload) -> float:
        """The share of jobs that ran as fast as below one leaf."""
        jobs = ClusterSimulator(workload, driver, treatment("reno")).run().jobs
        return sum(job.slowdown < 1.05 for job in jobs) / len(jobs)

    agents, known = train(pairs, 1, 16)
    workloads = [pairs(HELD_OUT + n) for n in range(3)]
    assert [inside(Marl(agents, known, each), each) for each in workloads] == [1.0] * 3
    assert all(inside(untrained(each, 1), each) < 0.9 for each in workloads)


def test_networks_worse_than_at_the_start_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training that turns all that is learned around ends with what it began with."""

    def spoil(agents: Agents, *_: object) -> None:
        for score in (agents.own, agents.passed):
            torch.nn.init.normal_(score[-1].weight, std=100.0)

    monkeypatch.setattr("mltcp_tools.clusters.marl.train.improve", spoil)
    agents, known = train(pairs, 1, 2)
    workload = pairs(HELD_OUT)
    own = run(workload, Marl(agents, known, workload))
    assert own == run(workload, policy("fifo")) | {"policy": "marl"}


def test_untrained_schedulers_save_nothing_of_fifo() -> None:
    runs = evaluate(drawn, 3, Agents(), Interference())
    assert [each["policy"] for each in runs[::3]] == ["marl", "fifo", "predicted"]
    assert [each | {"policy": "fifo"} for each in runs[:3]] == runs[3:6]


def test_predicted_finds_better_places_than_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    workload, given = pairs(1), shuffled(99)
    known = fit(workload, 1)
    monkeypatch.setattr("mltcp_tools.clusters.marl.agents.place", given)
    found = run(workload, Predicted(Agents(), known, workload))
    assert found["jobs"] == len(workload.jobs)
    assert found["slowdown_mean"] < run(workload, Fifo(given))["slowdown_mean"] - 0.5


WORKLOAD = """
cluster: {servers: 4, gpus: 2, rate: 10gbit, leaf: 2, oversubscription: 4}
generate: {jobs: 6, hours: 0.02, gpus: {2: 1, 4: 1}}
"""


def test_command_prints_policies_and_errors_as_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("EPISODES", "VALIDATED", "EPOCHS"):
        monkeypatch.setattr(f"mltcp_tools.clusters.marl.train.{name}", 1)
    file = tmp_path / "w.yaml"
    file.write_text(WORKLOAD)
    command = ["cluster", "marl", str(file), "--rounds", "1", "--held-out", "2", "--json"]
    assert main(command) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["policy"] for each in found["runs"]] == 2 * ["marl"] + 2 * ["fifo"] + 2 * [
        "predicted"
    ]
    assert found["interference"]["error"] < found["interference"]["guess"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "cluster: {servers: 4}\njobs: [{name: a, model: bert, gpus: 8, iterations: 9}]",
            "w.yaml lists its jobs; describe jobs to draw in `generate`",
        ),
        (
            "cluster: {servers: 1}\ngenerate: {jobs: 3, hours: 0.01, gpus: {2: 1}}",
            "leaves nothing to schedule; use several",
        ),
    ],
)
def test_workload_without_choices_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    file = tmp_path / "w.yaml"
    file.write_text(text)
    assert said in refused(capsys, "cluster", "marl", str(file))
