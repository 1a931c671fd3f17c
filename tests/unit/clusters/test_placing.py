# SPDX-License-Identifier: BSD-2-Clause
"""Jobs keep their shapes, near each other where that is possible."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from mltcp_tools.clusters.models import Model
from mltcp_tools.clusters.outcome import Outcome
from mltcp_tools.clusters.policies import policy
from mltcp_tools.clusters.policies.placing import shape
from mltcp_tools.clusters.rules import treatment
from mltcp_tools.clusters.simulate import ClusterSimulator
from mltcp_tools.clusters.topology import regular
from mltcp_tools.clusters.view import Decision, Policy, View
from mltcp_tools.clusters.workload import ClusterJob, Workload

TOPOLOGY = regular(servers=8, gpus=4, leaf=4, oversubscription=4.0, spines=1, rate_bps=10e9)
MODEL = Model("m", 0.1, 1_000_000)


class Watched:
    """A policy whose decisions are looked at."""

    def __init__(self, own: Policy, workload: Workload) -> None:
        self.name, self.round_s = own.name, own.round_s
        self._own, self._workload = own, workload
        self.crossing = self.decisions = 0

    def decide(self, view: View) -> Decision:
        decision = self._own.decide(view)
        free = view.free_without({})
        for number, allocation in decision.items():
            job = self._workload.jobs[number]
            assert Counter(allocation.values()) == shape(job, TOPOLOGY), job.name
            for server, gpus in allocation.items():
                free[server] -= gpus
            leaves = TOPOLOGY.leaves_of(allocation)
            self.crossing += len(leaves) > 1
        assert free.min() >= 0
        self.decisions += 1
        return decision


def run(workload: Workload, name: str) -> tuple[Outcome, Watched]:
    watched = Watched(policy(name, 3), workload)
    return ClusterSimulator(workload, watched, treatment("fair")).run(), watched


@pytest.mark.parametrize("name", ["fifo", "cassini", "replay"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_jobs_keep_their_shapes_in_a_fragmented_cluster(name: str, seed: int) -> None:
    draw = np.random.default_rng(seed)
    jobs = []
    for number in range(60):
        servers = draw.permutation(8)[: draw.integers(1, 5)]
        own = tuple((int(server), int(draw.integers(1, 5))) for server in servers)
        count = int(draw.integers(10, 400))
        gpus = sum(gpus for _, gpus in own)
        jobs.append(ClusterJob(f"j{number}", MODEL, gpus, count, 2.0 * number, placement=own))
    outcome, watched = run(Workload(TOPOLOGY, tuple(jobs)), name)
    assert len(outcome.jobs) == 60
    assert watched.decisions > 60


def test_jobs_that_fit_below_a_leaf_are_placed_there() -> None:
    spread = tuple((server, 4) for server in (0, 1, 4, 5))
    jobs = tuple(ClusterJob(f"j{n}", MODEL, 16, 100, 1.0 * n, placement=spread) for n in range(4))
    _, watched = run(Workload(TOPOLOGY, jobs), "fifo")
    assert watched.crossing == 0


def test_a_job_waits_for_its_shape_and_small_ones_overtake() -> None:
    """Eight GPUs in parts of servers aren't two whole ones."""
    topology = regular(servers=2, gpus=4, leaf=2, spines=1, rate_bps=10e9)
    jobs = (
        ClusterJob("a", MODEL, 3, 1000),
        ClusterJob("b", MODEL, 3, 1000),
        ClusterJob("wide", MODEL, 2, 100, 1.0),
        ClusterJob("one", MODEL, 1, 100, 2.0),
    )
    outcome = ClusterSimulator(Workload(topology, jobs), policy("fifo"), treatment("fair")).run()
    start_s = {job.name: job.start_s for job in outcome.jobs}
    assert start_s["one"] == 2
    assert start_s["wide"] == pytest.approx(100, rel=0.01)


def test_small_jobs_do_not_starve_the_first_in_the_queue() -> None:
    """Jobs of one GPU keep coming; without a reservation two whole servers were never free."""
    topology = regular(servers=2, gpus=4, leaf=2, spines=1, rate_bps=10e9)
    small = [ClusterJob(f"s{n}", MODEL, 1, 300, 2.0 * n) for n in range(100)]
    wide = ClusterJob("wide", MODEL, 8, 100, 31.0)
    quick = ClusterJob("quick", MODEL, 1, 10, 33.0)
    jobs = sorted([*small, wide, quick], key=lambda job: job.arrival_s)
    outcome = ClusterSimulator(
        Workload(topology, tuple(jobs)), policy("fifo"), treatment("fair")
    ).run()
    start_s = {job.name: job.start_s for job in outcome.jobs}
    # Of those before it, the last one runs from 44 s to 74 s; who fits before that may overtake.
    assert start_s["wide"] == pytest.approx(74, abs=1)
    assert start_s["quick"] == pytest.approx(60, abs=1)
