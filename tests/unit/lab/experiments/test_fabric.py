# SPDX-License-Identifier: BSD-2-Clause
"""Fabrics in experiment files: reading, writing, paths, and mistakes."""

from __future__ import annotations

from support.mistakes import mistakes, refusal

from mltcp_tools.lab.emulator.patterns import Pattern
from mltcp_tools.lab.experiments.fabric import Way
from mltcp_tools.lab.experiments.links import Link
from mltcp_tools.lab.experiments.reading import parse_experiment
from mltcp_tools.lab.experiments.tasks import tasks_of
from mltcp_tools.lab.experiments.variants import ALONE

TEXT = """name: fabric
fabric: {racks: 2, hosts: 2, access: {rate: 200mbit}, uplink: {rate: 100mbit, queue: 60kB}}
jobs:
  - {name: a, pattern: ring, pieces: 2, hosts: [r1h1, r1h2, r2h1], bytes: 1MB, compute: 100ms}
  - {name: b, pattern: experts, hosts: [r1h1, r2h2], bytes: 1MB, compute: 100ms, start: random}
variants:
  reno: {cc: reno}
"""


def test_a_fabric_is_read_and_written() -> None:
    experiment = parse_experiment(TEXT, "f.yaml")
    fabric = experiment.fabric
    assert fabric is not None
    assert fabric.spines == 2
    names = ["r1h1", "r1h2", "r2h1", "r2h2", "r1s1", "r1s2", "r2s1", "r2s2"]
    assert list(experiment.links) == names
    assert experiment.links["r2h1"] == Link(200_000_000)
    assert experiment.link == experiment.links["r1s1"] == Link(100_000_000, 60_000)
    assert parse_experiment(experiment.to_yaml(), "again.yaml") == experiment
    [[task, other]] = tasks_of(experiment, experiment.variants[0], 1)
    assert task.spec.pattern == Pattern("ring", 3, 2)
    assert other.spec.pattern == Pattern("experts", 2)
    assert len(tasks_of(experiment, experiment.variant(ALONE), 1)) == 2


def test_paths() -> None:
    fabric = parse_experiment(TEXT, "f.yaml").fabric
    assert fabric is not None
    assert fabric.path("r1h1", "r1h2", 1) == [Way("r1h1", True), Way("r1h2", False)]
    over = [Way("r1s2", True), Way("r2s2", False)]
    assert fabric.path("r1h1", "r2h2", 2) == [Way("r1h1", True), *over, Way("r2h2", False)]


def test_variants_spread_connections_alike_over_spines() -> None:
    experiment = parse_experiment(TEXT, "f.yaml")
    again = parse_experiment(TEXT, "f.yaml")
    job = experiment.jobs[0]
    taken = {
        experiment.spines_of(repetition, job, (0, 1, flow))
        for repetition in range(1, 5)
        for flow in range(8)
    }
    assert taken == {(1, 1), (1, 2), (2, 1), (2, 2)}
    assert experiment.spines_of(3, job, (0, 1, 0)) == again.spines_of(3, job, (0, 1, 0))


@mistakes(
    ("racks: 2, ", "", "f.yaml:2: fabric.racks: missing"),
    ("queue: 60kB", "delay: 1ms", "f.yaml:2: fabric.uplink: one of several links has neither"),
    ("r2h1]", "r3h1]", "f.yaml:4: jobs: the `hosts` of job a have r3h1, and the fabric r1h1"),
    ("r1h2, r2h1]", "r1h1]", "f.yaml:4: jobs: the `hosts` of job a must be different"),
    ("pattern: ring, pieces: 2, ", "", "f.yaml:4: jobs: the `pattern` of job a is missing"),
    ("hosts: [r1h1, r2h2], ", "", "f.yaml:5: jobs[2]: A pattern takes 2 to 64"),
    ("bytes: 1MB", "bytes: 300B", "f.yaml:4: jobs[1]: The bytes make messages of 50"),
    ("start: random", "direction: both", "f.yaml:5: jobs[2]: Not a possible job: the pattern"),
    ("variants:", "link: {rate: 1gbit}\nvariants:", "f.yaml:6: link: there is a `fabric`, too"),
    (
        "{cc: reno}",
        "{cc: reno, treatment: {time_shifts: {}}}",
        "f.yaml:7: variants: reno has time_shifts, which a fabric doesn't support",
    ),
    (
        "variants:",
        "neighbours: [{name: n, cc: reno}]\nvariants:",
        "f.yaml:6: neighbours: a fabric has no neighbours",
    ),
)
def test_mistakes(old: str, new: str, complaint: str) -> None:
    assert refusal(parse_experiment, TEXT, old, new).startswith(complaint)
