# SPDX-License-Identifier: BSD-2-Clause
"""Affinity graphs, loops, traversal and ranking, on clusters small enough to check by hand."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.mistakes import refused
from support.shown import fits

from mltcp_tools.cli.main import main
from mltcp_tools.lab.planning.affinity import (
    JOB,
    LINK,
    deciding_links,
    shared_links,
    traverse,
)
from mltcp_tools.lab.planning.cluster import plan_cluster
from mltcp_tools.lab.planning.topology import parse_cluster

JOBS = """
jobs:
  - {name: a, period: 100ms, phases: [{start: 60ms, duration: 40ms, rate: 1gbit}]}
  - {name: b, period: 100ms, phases: [{start: 60ms, duration: 40ms, rate: 1gbit}]}
  - {name: c, period: 100ms, phases: [{start: 60ms, duration: 40ms, rate: 1gbit}]}
  - {name: d, period: 50ms, phases: [{start: 40ms, duration: 5ms, rate: 1gbit}]}
"""
TREE = """
links:
  - {name: up-1, ends: [rack-1, spine], rate: 1gbit}
  - {name: up-2, ends: [rack-2, spine], rate: 1gbit}
  - {name: s1, ends: [s1, rack-1], rate: 1gbit}
  - {name: s2, ends: [s2, rack-1], rate: 1gbit}
  - {name: s3, ends: [s3, rack-2], rate: 1gbit}
  - {name: s4, ends: [s4, rack-2], rate: 1gbit}
"""


def named(links: str, placements: str, rate: str = "1gbit") -> str:
    """A cluster whose links have no ends."""
    listed = "".join(f"  - {{name: {link}, rate: {rate}}}\n" for link in links)
    return f"links:\n{listed}{JOBS}placements:\n{placements}"


CHAIN = named("LM", "  - {name: p, jobs: {a: {links: [L]}, b: {links: [L, M]}, c: {links: [M]}}}")
LOOP = named(
    "LMN",
    "  - {name: p, jobs: {a: {links: [L, N]}, b: {links: [L, M]}, c: {links: [M, N]}}}",
)


def test_traversal_gives_each_link_its_best_shifts() -> None:
    plan = plan_cluster(parse_cluster(CHAIN, "f"))[0]
    assert plan.score == pytest.approx(1.0)
    assert plan.shifts["a"] == 0
    for one, other in (("a", "b"), ("b", "c")):
        apart = (plan.shifts[other] - plan.shifts[one]) % 0.1
        assert 0.04 - 1e-9 <= apart <= 0.06 + 1e-9
    assert plan.links["L"].unshifted == pytest.approx(0.6, abs=0.01)


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(2, 12))
def test_traversal_of_any_tree_keeps_what_every_link_wants(seed: int, jobs: int) -> None:
    # Theorem 1: without a loop, differences of shifts on every link are the link's own.
    generator = np.random.default_rng(seed)
    periods = {f"j{n}": int(generator.choice([12, 24, 36])) for n in range(jobs)}
    graph = nx.Graph()
    weights: dict[str, dict[str, int]] = {}
    for number in range(1, jobs):
        link = f"l{number}"
        if weights and generator.random() < 0.4:
            link = str(generator.choice(list(weights)))  # one more job on a link that is there
        else:
            other = f"j{generator.integers(number)}"
            weights[link] = {other: int(generator.integers(periods[other]))}
            graph.add_edge((JOB, other), (LINK, link))
        weights[link][f"j{number}"] = int(generator.integers(periods[f"j{number}"]))
        graph.add_edge((JOB, f"j{number}"), (LINK, link))
    shifts = traverse(graph, weights, periods)
    assert set(shifts) == set(periods)
    for wanted in weights.values():
        # All jobs of a link are turned by the same time, apart from whole iterations.
        time_shifts = [
            {(shifts[job] - shift + n * periods[job]) % 72 for n in range(72 // periods[job])}
            for job, shift in wanted.items()
        ]
        assert set.intersection(*time_shifts)


def test_loop_is_solved_jointly() -> None:
    # Pairwise 40 % bursts fit; all three of them pairwise apart need 120 % of the circle.
    plan = plan_cluster(parse_cluster(LOOP, "f"))[0]
    # Two pairs lie apart, the third overlaps in 20 of 100 ms, or the same spread over the pairs.
    assert plan.score == pytest.approx(1 - 0.2 / 3, abs=0.01)
    assert plan.bound == pytest.approx(plan.score)
    fitting = plan_cluster(parse_cluster(LOOP.replace("duration: 40ms", "duration: 30ms"), "f"))
    assert fitting[0].score == pytest.approx(1.0)


def test_a_path_over_several_links_is_no_loop() -> None:
    text = named("LMN", "  - {name: p, jobs: {a: {links: [L, M, N]}, b: {links: [L, M]}}}")
    cluster = parse_cluster(text, "f")
    members = shared_links(cluster, cluster.placements[0])
    assert list(members) == ["L", "M"]
    assert deciding_links(cluster, members) == ["L"]
    plan = plan_cluster(cluster)[0]
    scores = {name: link.score for name, link in plan.links.items()}
    assert scores == pytest.approx({"L": 1.0, "M": 1.0})


def test_ring_goes_by_shortest_paths_and_counts_crossings() -> None:
    text = f"""{TREE}{JOBS}
placements:
  - name: p
    jobs:
      a: {{servers: [s1, s2, s3]}}
      b: {{servers: [s1, s3, s2, s4]}}
      c: {{servers: [s4]}}
"""
    crossings = parse_cluster(text, "f").placements[0].crossings
    assert crossings["a"] == {"s1": 1, "s2": 1, "up-1": 1, "up-2": 1, "s3": 1}
    # s1 -> s3 -> s2 -> s4 -> s1 goes up and down twice.
    assert crossings["b"] == {"s1": 1, "up-1": 2, "up-2": 2, "s3": 1, "s2": 1, "s4": 1}
    assert crossings["c"] == {}


RANKED = named(
    "LM",
    "  - {name: crowded, jobs: {a: {links: [L]}, b: {links: [L]}, c: {links: [L]}}}\n"
    "  - {name: good, jobs: {a: {links: [L]}, b: {links: [L]}, c: {links: [M]}, d: {links: [M]}}}",
)


def test_ranking_and_its_outputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(RANKED)
    assert main(["plan", "cluster", str(path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "mltcp-plan-cluster/1"
    assert [each["name"] for each in document["placements"]] == ["good", "crowded"]
    good, crowded = document["placements"]
    assert good["score"] == pytest.approx(1.0)
    assert crowded["score"] == pytest.approx(0.8, abs=0.01)
    assert set(good["jobs"]) == set("abcd")
    assert main(["plan", "cluster", str(path)]) == 0
    out = capsys.readouterr().out
    assert out.index("good") < out.index("crowded")
    fits(out)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (named("L", "  - {name: p, jobs: {z: {links: [L]}}}"), "there is no job 'z'"),
        (named("LM", "  - {name: p, jobs: {a: {links: [L]}}}"), "link M is named by no job"),
        (named("L", "  - {name: p, jobs: {a: {}}}"), "needs either servers or links"),
        (named("L", "  - {name: p}"), "p.yaml:10: placements[1].jobs: missing"),
        (f"{TREE}{JOBS}placements: [{{name: p, jobs: {{a: {{servers: [s1, x]}}}}}}]", "an end 'x'"),
        (
            f"{TREE}  - {{name: far, ends: [x, y], rate: 1gbit}}\n{JOBS}"
            "placements: [{name: p, jobs: {a: {servers: [s1, x]}}}]",
            "no links lead from s1 to x",
        ),
        (
            f"{TREE}  - {{name: more, ends: [spine, rack-1], rate: 1gbit}}\n{JOBS}"
            "placements: [{name: p, jobs: {a: {servers: [s1]}}}]",
            "up-1 joins the same ends",
        ),
        (named("L", "  - &p {name: p, jobs: *p}"), "jobs.name: there is no job 'name'"),
    ],
)
def test_bad_clusters_are_one_sentence(
    text: str, complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(text)
    assert complaint in refused(capsys, "plan", "cluster", str(path))


EXAMPLES = Path(str(resources.files("mltcp_tools.lab.planning"))) / "examples"


def test_shipped_examples_work() -> None:
    assert main(["plan", "score", str(EXAMPLES / "one-link.yaml")]) == 0
    assert main(["plan", "cluster", str(EXAMPLES / "racks.yaml")]) == 0
