# SPDX-License-Identifier: BSD-2-Clause
"""The cost of the cluster simulator: seconds of CPU time and memory at its two goals.

    python tests/bench/bench_clusters.py [POLICY:TREATMENT[:HOURS] | full:TREATMENT:SECONDS ...]

1,000 GPUs for 1,000 iterations, all contending; then a week of 10,000 jobs on 4,096 GPUs, or its
first HOURS. full: SECONDS of virtual time of that cluster when it is full of jobs that are
scattered over it, as it is on all but the first day of a week with random placement.
"""

from __future__ import annotations

import contextlib
import resource
import sys
import time

import numpy as np

from mltcp_tools.clusters.engine.library import FlowJob, FlowSimulator
from mltcp_tools.clusters.models import MODELS, Allocation, phases_of
from mltcp_tools.clusters.policies import policy
from mltcp_tools.clusters.policies.placing import take
from mltcp_tools.clusters.rules import TREATMENTS, treatment
from mltcp_tools.clusters.simulate import ClusterSimulator
from mltcp_tools.clusters.topology import regular
from mltcp_tools.clusters.view import Decision, Policy, View
from mltcp_tools.clusters.workload import Generated, Workload, generate

KINDS = ("resnet50", "vgg16", "bert", "transformer", "lm")


def iterations(how: str, jitter: float) -> None:
    """41 jobs of three servers each, scattered over a network that is four times too narrow."""
    topology = regular(servers=125, gpus=8, leaf=16, oversubscription=4.0, spines=4, rate_bps=25e9)
    simulator = FlowSimulator(topology.rates_bps, TREATMENTS[how].rule, packets=topology.packets)
    draw = np.random.default_rng(1)
    servers = draw.permutation(topology.servers)
    count = topology.servers // 3
    for number in range(count):
        model = MODELS[KINDS[number % len(KINDS)]]
        allocation = {int(each): 8 for each in servers[3 * number : 3 * number + 3]}
        phases = phases_of(model, topology, allocation, number)
        rows = np.full((1000, len(phases)), phases[0].compute_s)
        rows *= 1 + jitter * draw.standard_normal((1000, 1))
        start_s = float(draw.uniform(0, 1))
        simulator.add(FlowJob(phases, 1000, start_s=start_s, compute_s=rows, seed=number))
    began = time.process_time()
    for _ in range(count):
        done = simulator.run(1e9)
        assert done is not None
        simulator.remove(done)
    took = time.process_time() - began
    print(f"1,000 iterations, {how}, jitter {jitter:.0%}: {took:.1f} s", simulator.counters())


class Until:
    """A policy, until an instant at which it ends the simulation."""

    def __init__(self, own: Policy, end_s: float) -> None:
        self.name, self.round_s = own.name, own.round_s
        self._own, self._end_s = own, end_s
        self.most = 0

    def decide(self, view: View) -> Decision:
        """As its own decides."""
        self.most = max(self.most, len(view.running))
        if view.now_s >= self._end_s:
            raise StopIteration
        return self._own.decide(view)


def arrivals() -> Workload:
    """10,000 jobs that arrive in five days and a half."""
    topology = regular(servers=512, gpus=8, leaf=16, oversubscription=2.0, spines=8, rate_bps=100e9)
    gpus = {1: 30.0, 2: 10.0, 4: 15.0, 8: 25.0, 16: 10.0, 32: 7.0, 64: 3.0}
    draws = Generated(jobs=10_000, load=0.8, hours=5, gpus=gpus)
    return Workload(topology, generate(topology, draws, 1))


def scattered(workload: Workload) -> dict[int, Allocation]:
    """Places of jobs after thousands came and went, each taking any GPUs that were free."""
    topology = workload.topology
    free = np.full(topology.servers, topology.gpus, dtype=np.int64)
    draw = np.random.default_rng(5)
    placed: dict[int, Allocation] = {}
    number = 0
    for _ in range(60):
        for gone in [each for each in placed if draw.random() < 0.15]:
            for server, gpus in placed.pop(gone).items():
                free[server] += gpus
        while free.sum() >= workload.jobs[number].gpus:
            order = np.random.default_rng((1, number)).permutation(topology.servers)
            placed[number] = take(free, order, workload.jobs[number].gpus)
            for server, gpus in placed[number].items():
                free[server] -= gpus
            number += 1
    return placed


def full(how: str, seconds: str) -> None:
    """A full cluster, from its third second on; and the events that a week of such jobs has."""
    workload = arrivals()
    topology = workload.topology
    simulator = FlowSimulator(topology.rates_bps, TREATMENTS[how].rule, packets=topology.packets)
    draw = np.random.default_rng(1)
    for number, allocation in scattered(workload).items():
        job = workload.jobs[number]
        phases = phases_of(job.model, topology, allocation, number)
        start_s = float(draw.uniform(0, 1))
        simulator.add(FlowJob(phases, 10**7, start_s, job.compute_rows(), seed=job.seed))
    simulator.run(2.0)
    before, began = simulator.counters()["events"], time.process_time()
    simulator.run(2.0 + float(seconds))
    took, events = time.process_time() - began, simulator.counters()["events"] - before
    bursts = sum(2 * job.iterations * job.model.phases for job in workload.jobs if job.gpus > 1)
    print(
        f"{seconds} s, full, {how}: {took:.1f} s, {events} events,"
        f" {took / events * 1e6:.1f} us each;"
        f" bursts of jobs of two GPUs or more begin and end {bursts / 1e6:.0f} million times a week"
    )


def week(name: str, how: str, hours: str = "inf") -> None:
    """The jobs until the last one ends, or so many hours of them."""
    workload = arrivals()
    scheduler = Until(policy(name), float(hours) * 3600)
    simulator = ClusterSimulator(workload, scheduler, treatment(how))
    began = time.process_time()
    with contextlib.suppress(StopIteration):
        simulator.run()
    took = time.process_time() - began
    outcome = simulator._outcome
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{outcome.makespan_s / 3600:.1f} hours, {name}, {how}: {took:.1f} s,"
        f" {outcome.events} events, {took / outcome.events * 1e6:.1f} us each,"
        f" at most {scheduler.most} jobs at once, {memory:.0f} MB"
    )


if __name__ == "__main__":
    for rule, spread in (("reno", 0.05), ("mltcp", 0.05), ("mltcp", 0.0), ("fair", 0.0)):
        iterations(rule, spread)
    for each in sys.argv[1:] or ("fifo:reno", "fifo:mltcp"):
        first, *others = each.split(":")
        if first == "full":
            full(*others)
        else:
            week(first, *others)
