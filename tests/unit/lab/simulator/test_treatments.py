# SPDX-License-Identifier: BSD-2-Clause
"""Treatments in virtual time: windows from feedback, and priorities from an order."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from support.simulated import mean_ms

from mltcp_tools.base.errors import UsageError
from mltcp_tools.lab.analysis import load_run, make_report
from mltcp_tools.lab.experiments.reading import parse_experiment
from mltcp_tools.lab.simulator.inputs import PacketJob, PriorityQueues, SimulatedLink
from mltcp_tools.lab.simulator.library import simulate
from mltcp_tools.lab.simulator.modelled import modelled
from mltcp_tools.lab.simulator.simulate_experiment import simulate_experiment
from mltcp_tools.lab.simulator.variants import simulate_variant
from mltcp_tools.live.priorities.coflows import WEIGHTS, CoflowProgress, bssi
from mltcp_tools.live.priorities.coflows import weight as coflow_weight

EXPERIMENT = """\
name: four
link: {rate: 200mbit, queue: 8kB}
jobs: [{count: 4, bytes: 2.5MB, compute: 340ms, jitter: 5%, start: random}]
variants:
  reno: {cc: reno}
  base: {cc: mltcp_reno}
  deaf: {cc: mltcp_int}
  network: {cc: mltcp_int, treatment: {rates: {}}}
  host: {cc: mltcp_int, treatment: {rates: {source: host}}}
  each: {cc: reno, treatment: {priorities: {weight: none}}}
iterations: 40
repetitions: 1
alone: {iterations: 0}
"""


def test_following_feedback_keeps_jobs_apart_in_a_short_queue() -> None:
    experiment, left_out = modelled(parse_experiment(EXPERIMENT, "four.yaml"))
    assert not left_out
    drops = {
        name: simulate_variant(experiment, experiment.variant(name), 1).counters.drops
        for name in ("network", "reno")
    }
    assert mean_ms(experiment, "network", 1) < 0.95 * mean_ms(experiment, "reno", 1)
    assert drops["network"] < drops["reno"] / 3


def test_without_feedback_it_is_its_base() -> None:
    """Two variants with the same window from first to last; only the name differs."""
    experiment, _ = modelled(parse_experiment(EXPERIMENT, "four.yaml"))
    assert mean_ms(experiment, "deaf", 1) == mean_ms(experiment, "base", 1)


def test_rates_are_for_what_looks_at_feedback() -> None:
    with pytest.raises(UsageError, match=r"four.yaml:8: .*rates is for `cc: mltcp_int`"):
        parse_experiment(EXPERIMENT.replace("cc: mltcp_int, t", "cc: mltcp, t"), "four.yaml")
    with pytest.raises(UsageError, match="'switch' is not one of network, host"):
        parse_experiment(EXPERIMENT.replace("source: host", "source: switch"), "four.yaml")


@pytest.mark.parametrize("weight", WEIGHTS)
def test_priorities_give_the_link_to_one_burst_at_a_time(weight: str) -> None:
    text = EXPERIMENT.replace("weight: none", f"weight: {weight}")
    experiment, _ = modelled(parse_experiment(text, "four.yaml"))
    assert mean_ms(experiment, "each", 1) < 0.85 * mean_ms(experiment, "reno", 1)


COMPRESSED = EXPERIMENT.replace("start: random}", "start: random, compress: {to: 25%, cost: 1ms}}")


def test_a_burst_that_isnt_first_is_sent_smaller() -> None:
    """Only where there are priorities; and a variant may then be faster than the bound."""
    experiment, _ = modelled(parse_experiment(COMPRESSED, "compressed.yaml"))
    plain, _ = modelled(parse_experiment(EXPERIMENT, "four.yaml"))
    assert mean_ms(experiment, "reno", 1) == mean_ms(plain, "reno", 1)
    assert mean_ms(experiment, "each", 1) < mean_ms(plain, "each", 1)
    documents = [
        done for _, done in simulate_variant(experiment, experiment.variant("each"), 1).documents
    ]
    sent = [each["bytes"] for done in documents for each in done["iterations"]]
    assert set(sent) == {2_500_000, 625_000}


def test_who_compresses_may_be_faster_than_the_bound(tmp_path: Path) -> None:
    experiment, _ = modelled(parse_experiment(COMPRESSED, "compressed.yaml"))
    simulate_experiment(experiment.override(variants=["reno", "each"]), tmp_path)
    assert "The evaluation failed" not in json.dumps(make_report(load_run(tmp_path)).result)


def test_compressing_takes_its_time() -> None:
    """Two bursts begin at once, the second one then waits for its cost before it is sent."""
    sizes = [2_000_000, 2_000_000]
    jobs = [
        PacketJob(0.0, [0.01], [[size]], compressed=[[size // 4]], compress=[0.5]) for size in sizes
    ]
    link = SimulatedLink(200e6, 100_000, 1e-4)
    first, second = simulate(link, jobs, seed=1, priorities=PriorityQueues()).bursts
    assert [int(each["bytes"][0]) for each in (first, second)] == [2_000_000, 500_000]
    assert second["end_ns"][0] - second["start_ns"][0] > 500_000_000
    alike = simulate(link, jobs, seed=1).bursts
    assert [int(each["bytes"][0]) for each in alike] == sizes


@pytest.mark.parametrize("weight", range(3))
def test_the_order_is_sincronias(weight: int) -> None:
    """Three bursts begin at once; on one link they must end in the order that BSSI gives."""
    sizes = [3_000_000, 1_000_000, 2_000_000]
    jobs = [PacketJob(start=0.0, compute=[0.01], bytes=[[size]]) for size in sizes]
    priorities = PriorityQueues(weight=weight)
    link = SimulatedLink(200e6, 100_000, 1e-4)
    done = simulate(link, jobs, seed=1, priorities=priorities)
    ends = [int(bursts["end_ns"][0]) for bursts in done.bursts]
    weights = [coflow_weight(WEIGHTS[weight], CoflowProgress(remaining=1.0)) for _ in sizes]
    order = bssi([{"link": float(size)} for size in sizes], weights)
    assert sorted(range(3), key=ends.__getitem__) == order


@pytest.mark.parametrize("seed", range(6))
def test_the_order_over_several_links_is_sincronias(seed: int) -> None:
    """Bursts that begin at once, each over some of three links of different rates; where two of
    them share a link, the one that BSSI puts first ends first there."""
    draw = random.Random(seed)
    links = [SimulatedLink(rate, 300_000, 1e-4) for rate in (100e6, 150e6, 200e6)]
    back = SimulatedLink(10e9, 10**6, 1e-4)
    paths = [draw.choice([(0,), (0, 1), (1, 2)]) for _ in range(4)]
    sizes = [draw.randint(5, 40) * 100_000 for _ in paths]
    jobs = [
        PacketJob(start=0.0, compute=[0.01], bytes=[[size]], ahead=path, back=(3,))
        for size, path in zip(sizes, paths, strict=True)
    ]
    done = simulate([*links, back], jobs, seed=1, priorities=PriorityQueues())
    ends = [int(bursts["end_ns"][0]) for bursts in done.bursts]
    demands = [
        {link: size * 8 / links[link].rate for link in path}
        for size, path in zip(sizes, paths, strict=True)
    ]
    order = bssi(demands)
    for place, job in enumerate(order):
        for later in order[place + 1 :]:
            if set(paths[job]) == set(paths[later]):
                assert ends[job] < ends[later]


def test_the_last_level_is_sure_of_its_floor() -> None:
    """Of a link that a longer, earlier level would have all of."""

    def share(floor: float) -> float:
        jobs = [
            PacketJob(start=0.0, compute=[0.01], bytes=[[8_000_000]]),
            PacketJob(start=0.0, compute=[0.01], bytes=[[16_000_000]]),
        ]
        priorities = PriorityQueues(floor=floor)
        link = SimulatedLink(200e6, 100_000, 1e-4)
        done = simulate(link, jobs, seed=1, trace=0.05, priorities=priorities)
        sent = done.samples[done.samples["job"] == 1]
        while_other_sends = sent[sent["time_ns"] < done.bursts[0]["end_ns"][0]]
        return float(while_other_sends["acked"].max()) / 8_000_000

    assert share(0.0) < 0.01
    assert 0.04 < share(0.05) < 0.08
