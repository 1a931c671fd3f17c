# SPDX-License-Identifier: BSD-2-Clause
"""Experiments with several links, and bursts of several ways."""

from __future__ import annotations

from support.mistakes import mistakes, refusal

from mltcp_tools.lab.experiments.links import Link
from mltcp_tools.lab.experiments.reading import parse_experiment
from mltcp_tools.lab.experiments.tasks import tasks_of
from mltcp_tools.lab.experiments.variants import ALONE

UNEVEN = """\
name: uneven
jobs:
  - {bytes: 1MB, compute: 100ms, flows: 3, split: [2, 1, 1]}
  - {name: ring, bytes: 1MB, compute: 100ms, direction: both, chunk: 64kB}
variants:
  reno: {cc: reno}
  mltcp: {cc: mltcp}
"""


def test_the_ways_of_a_burst_are_read_and_written() -> None:
    experiment = parse_experiment(UNEVEN, "u.yaml")
    uneven, ring = experiment.jobs
    assert (uneven.split, ring.chunk) == ((2, 1, 1), 64_000)
    assert parse_experiment(experiment.to_yaml(), "again.yaml") == experiment
    assert uneven.spec(iterations=1, seed=1).shares(1) == [500_000, 250_000, 250_000]


LINKS = """\
name: links
links: {one: {rate: 100mbit}, two: {rate: 50mbit, queue: 60kB}}
jobs:
  - {name: a, bytes: 1MB, compute: 100ms, links: [one]}
  - {name: b, bytes: 1MB, compute: 100ms, links: [two, one], start: random}
variants:
  reno: {cc: reno}
"""


def test_several_links() -> None:
    experiment = parse_experiment(LINKS, "l.yaml")
    assert experiment.links == {"one": Link(100_000_000), "two": Link(50_000_000, 60_000)}
    assert experiment.link == experiment.links["two"]  # the slowest
    assert [job.links for job in experiment.jobs] == [("one",), ("two", "one")]
    assert parse_experiment(experiment.to_yaml(), "again.yaml") == experiment
    assert len(experiment.isolated_jobs()) == 2
    groups = tasks_of(experiment, experiment.variant(ALONE), 1)
    assert [[task.sender for task in tasks] for tasks in groups] == [[0], [1]]  # each its own path


@mistakes(
    ("links: [one]", "links: [none]", "l.yaml:2: links: the `links` of a must be some of one,"),
    (", links: [one]}", "}", "l.yaml:2: links: the `links` of a are missing; name those it"),
    ("links: {one", "link: {rate: 1gbit}\nlinks: {one", "l.yaml:2: link: there are `links`, too"),
    ("{one: ", "{the-first: ", "l.yaml:2: links.the-first: a link's name has lower-case"),
    ("links: {one: {rate: 100mbit}, two: {rate: 50mbit, queue: 60kB}}\n", "", "l.yaml:1: the"),
)
def test_mistakes_with_links(old: str, new: str, complaint: str) -> None:
    assert refusal(parse_experiment, LINKS, old, new, "l.yaml").startswith(complaint)
