# SPDX-License-Identifier: BSD-2-Clause
"""`mltcp cluster run`: draws, intervals, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from mltcp_tools.cli.cluster import command
from mltcp_tools.clusters.models import Model
from mltcp_tools.clusters.outcome import Outcome
from mltcp_tools.clusters.policies import policy
from mltcp_tools.clusters.rules import treatment
from mltcp_tools.clusters.simulate import ClusterSimulator
from mltcp_tools.clusters.text import render_summaries, share
from mltcp_tools.clusters.topology import regular
from mltcp_tools.clusters.workload import ClusterJob, Workload

ONE = regular(servers=1, gpus=1, leaf=1, oversubscription=1.0, spines=1, rate_bps=10e9)
CALM, LOUD = Model("calm", 0.1, 0), Model("loud", 0.1, 0)


def run(name: str, models: tuple[Model, ...]) -> Outcome:
    """A policy on one GPU, with a job of 1000 s of each model."""
    jobs = tuple(ClusterJob(f"j{n}", model, 1, 10_000) for n, model in enumerate(models))
    return ClusterSimulator(Workload(ONE, jobs), policy(name), treatment("fair")).run()


def test_line_of_several_draws_gives_saving_over_the_first() -> None:
    def line(policy: str, how: str, seed: int, completion_s: float) -> dict[str, object]:
        known = run("fifo", (CALM,)).summary()
        own = {"policy": policy, "treatment": how, "seed": seed}
        return known | own | {"completion_mean_s": completion_s}

    times = {("cassini", "reno"): (100.0, 200.0), ("elastic", "reno"): (90.0, 178.0)}
    times |= {("cassini", "mltcp"): (96.0, 192.0), ("fifo", "reno"): (80.0, 300.0)}
    lines = [line(*key, n, each[n]) for n in (0, 1) for key, each in times.items()]
    shown = render_summaries(lines)
    assert shown.splitlines()[0].split()[2:6] == ["completion", "below", "the", "first"]
    # Of 10 and 11 %, 12.706 times 0.5.
    assert "elastic  reno       2.2 min     +10.5% ± 6.4" in shown
    # MLTCP's gain is smaller than the error of its rule, though it is the same in each draw.
    assert "none (+4.0%)" in shown
    assert "none (-15.0% ±" in shown
    assert "below the first" not in render_summaries(lines[:4])


@pytest.mark.parametrize(
    ("mean", "half", "shown"),
    [(0.0312, 0.0121, "+3.1% ± 1.2"), (0.02, 0.0004, "+2.0%"), (-0.0004, 0.0005, "+0.0% ± 0.1")],
)
def test_an_interval_that_rounds_to_zero_is_not_shown(mean: float, half: float, shown: str) -> None:
    assert share(mean, half) == shown


def test_draws_reach_jobs_paths_and_output(tmp_path: Path) -> None:
    file = tmp_path / "w.yaml"
    draws = "{jobs: 5, hours: 0.02, models: {bert: 1}, gpus: {8: 1}, jitter: 3%}"
    file.write_text(f"cluster: {{servers: 8}}\nseed: 3\ngenerate: {draws}\n")

    def runs(*options: str) -> list[dict[str, object]]:
        words = ["run", str(file), "--treatment", "reno", "--json", *options]
        found = CliRunner().invoke(command, words)
        assert found.exception is None, found.output
        return list(json.loads(found.stdout)["runs"])

    two = runs("--draws", "2", "--policy", "fifo,elastic")
    assert [each["seed"] for each in two] == [3, 3, 4, 4]
    assert two[0]["makespan_s"] != two[2]["makespan_s"]
    file.write_text(file.read_text().replace("seed: 3", "seed: 4"))
    assert runs()[0] == two[2]
    file.write_text(file.read_text().replace("seed: 4", "seed: 3"))
    assert [len(each["each"]) for each in runs("--draws", "2")] == [5, 5]  # type: ignore[arg-type]


def test_a_shorter_workload_ends_sooner_by_the_same_factor() -> None:
    jobs = (ClusterJob("a", CALM, 1, 10_000), ClusterJob("b", LOUD, 1, 10_000, 500.0))
    plain = Workload(ONE, jobs)
    long_s, short_s = (
        ClusterSimulator(each, policy("fifo"), treatment("fair")).run().makespan_s
        for each in (plain, plain.shorter(10))
    )
    assert short_s == pytest.approx(long_s / 10, rel=1e-3)
