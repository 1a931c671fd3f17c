"""Sia and Gavel do what their papers' programs say."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from mltcp_tools.cli.cluster import command
from mltcp_tools.clusters.models import Model
from mltcp_tools.clusters.outcome import Outcome
from mltcp_tools.clusters.pairs import Pairs
from mltcp_tools.clusters.policies import policy
from mltcp_tools.clusters.policies.gavel import Gavel
from mltcp_tools.clusters.policies.marginal import speed
from mltcp_tools.clusters.policies.plan import sizes
from mltcp_tools.clusters.policies.sia import CHANGE, NONE, POWER, Sia
from mltcp_tools.clusters.rules import treatment
from mltcp_tools.clusters.simulate import ClusterSimulator
from mltcp_tools.clusters.text import render_summaries
from mltcp_tools.clusters.topology import regular
from mltcp_tools.clusters.view import Decision, JobState, Shared, View
from mltcp_tools.clusters.workload import ClusterJob, Workload, lone_iteration_s

TWO = regular(servers=2, gpus=4, leaf=2, oversubscription=1.0, spines=1, rate_bps=10e9)
ONE = regular(servers=1, gpus=1, leaf=1, oversubscription=1.0, spines=1, rate_bps=10e9)
CALM, LOUD = Model("calm", 0.1, 0), Model("loud", 0.1, 0)
PAIRS = Pairs(
    {each.name: each for each in (CALM, LOUD)},
    {
        ("calm", "calm"): 1.25,
        ("calm", "loud"): 4.0,
        ("loud", "calm"): 4.0,
        ("loud", "loud"): 4.0,
    },
)


def waiting(*jobs: tuple[Model, int]) -> View:
    """A view of TWO, all idle, with jobs that wait."""
    made = [ClusterJob(f"j{n}", model, gpus, 100) for n, (model, gpus) in enumerate(jobs)]
    states = [JobState(n, job, lone_iteration_s(job, TWO)) for n, job in enumerate(made)]
    return View(0.0, TWO, TWO.gpus_of.copy(), tuple(states), (), lambda state: 0.0)


def run(name: str, models: tuple[Model, ...], pairs: Pairs | None = None) -> Outcome:
    """A policy on one GPU, with a job of 1000 s of each model."""
    jobs = tuple(ClusterJob(f"j{n}", model, 1, 10_000) for n, model in enumerate(models))
    return ClusterSimulator(Workload(ONE, jobs, pairs=pairs), policy(name), treatment("fair")).run()


def counts(decision: Decision) -> dict[int, int]:
    """GPUs by job."""
    return {number: sum(each.values()) for number, each in decision.items()}


def test_sia_chooses_the_configurations_that_cost_least_together() -> None:
    heavy = Model("heavy", 0.1, 800_000_000)
    view = waiting((CALM, 4), (CALM, 1), (heavy, 8), (heavy, 2))
    choices = []
    for state in view.waiting:
        speeds = {n: speed(view, state, n) for n in sizes(view, state)}
        least = min(speeds.values())
        choices.append({0: NONE} | {n: (own / least) ** POWER for n, own in speeds.items()})
    best = min(
        sum(choice[n] for choice, n in zip(choices, ns, strict=True))
        for ns in itertools.product(*choices)
        if sum(ns) <= 8
    )
    found = counts(Sia().decide(view))
    cost = sum(choice[found.get(n, 0)] for n, choice in enumerate(choices))
    assert cost == pytest.approx(best)


def test_sia_changes_nothing_between_rounds_and_little_where_it_restarted_often() -> None:
    sia = Sia()
    view = waiting((CALM, 2))
    (allocation,) = sia.decide(view).values()
    state = replace(view.waiting[0], allocation=allocation, first_start_s=0.0)
    later = waiting((CALM, 2), (CALM, 4))
    both = replace(later, waiting=later.waiting[1:], running=(state,))
    assert sia.decide(replace(both, now_s=59.0)) == {0: allocation}
    assert set(sia.decide(replace(both, now_s=60.0))) == {0, 1}
    # What has restarted for most of its time keeps what it has, if that is half as fast.
    state = replace(state, allocation={0: 1})
    lone = replace(view, waiting=(), running=(state,), now_s=300.0)
    fresh, restless = Sia(), Sia()
    restless._restarts[0] = 9
    assert counts(fresh.decide(lone))[0] > counts(restless.decide(lone))[0] == 1
    assert CHANGE < NONE - 1


def test_gavel_gives_jobs_of_equal_size_equal_time() -> None:
    outcome = run("gavel", (CALM, LOUD, LOUD))
    ends_s = [job.end_s for job in outcome.jobs]
    # By turns of 360 s, all three end in the last three rounds.
    assert max(ends_s) - min(ends_s) < 3 * 360
    assert max(ends_s) > 3000


def test_gavel_lets_those_share_that_do_more_together() -> None:
    """Two calm jobs do 1.6 times as much together, a loud one nothing to anybody's good."""
    shared, apart = run("gavel", (CALM, CALM), PAIRS), run("gavel", (CALM, LOUD), PAIRS)
    assert shared.makespan_s == pytest.approx(1250, rel=0.01)
    assert apart.makespan_s > 2000
    view = replace(waiting((CALM, 1), (CALM, 1)), pairs=PAIRS)
    # Where there is room for both there is nothing to share.
    assert not any(isinstance(each, Shared) for each in Gavel().decide(view).values())


def test_completion_times_with_estimates_are_a_column_beside() -> None:
    columns = []
    for name in ("srtf", "srtf-estimated", "fifo"):
        columns.append(run(name, (CALM, LOUD)).summary())
    head, first, second = render_summaries(columns).splitlines()
    assert head.split()[2:4] == ["completion", "estimated"]
    assert first.split()[0] == "srtf"
    assert second.split()[0] == "fifo"
    assert "estimated" not in render_summaries(columns[:1])
    assert "srtf-estimated" in render_summaries(columns[1:2])


def test_of_several_draws_a_line_says_what_it_saves_of_the_first_ones_time() -> None:
    def line(policy: str, how: str, seed: int, completion_s: float) -> dict[str, object]:
        known = run("fifo", (CALM,)).summary()
        own = {"policy": policy, "treatment": how, "seed": seed}
        return known | own | {"completion_mean_s": completion_s}

    times = {("srtf", "reno"): (100.0, 200.0), ("las", "reno"): (90.0, 178.0)}
    times |= {("srtf", "mltcp"): (96.0, 192.0), ("fifo", "reno"): (80.0, 300.0)}
    lines = [line(*key, n, each[n]) for n in (0, 1) for key, each in times.items()]
    shown = render_summaries(lines)
    assert shown.splitlines()[0].split()[2:6] == ["completion", "below", "the", "first"]
    # Of 10 and 11 %, 12.706 times 0.5.
    assert "las     reno       2.2 min     +10.5% ± 6.4" in shown
    # MLTCP's gain is smaller than the error of its rule, though it is the same in each draw.
    assert "none (+4.0% ± 0.0)" in shown
    assert "none (-15.0% ±" in shown
    assert "below the first" not in render_summaries(lines[:4])


def test_draws_reach_the_jobs_their_paths_and_what_is_told_of_them(tmp_path: Path) -> None:
    file = tmp_path / "w.yaml"
    draws = "{jobs: 5, hours: 0.02, models: {bert: 1}, gpus: {8: 1}, jitter: 3%}"
    file.write_text(f"cluster: {{servers: 8}}\nseed: 3\ngenerate: {draws}\n")

    def runs(*options: str) -> list[dict[str, object]]:
        words = ["run", str(file), "--treatment", "reno", "--json", *options]
        found = CliRunner().invoke(command, words)
        assert found.exception is None, found.output
        return list(json.loads(found.stdout)["runs"])

    two = runs("--draws", "2", "--policy", "fifo,srtf")
    assert [each["seed"] for each in two] == [3, 3, 4, 4]
    assert two[0]["makespan_s"] != two[2]["makespan_s"]
    assert runs("--seed", "4")[0] == two[2]
    folder = tmp_path / "run"
    runs("--draws", "2", "-o", str(folder))
    table = (folder / "jobs.csv").read_text().splitlines()
    assert len(table) == 1 + 2 * 5
    assert {line.split(",")[2] for line in table[1:]} == {"3", "4"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--policy", "fifo,nosuch"), "there is no policy 'nosuch'"),
        (("--policy", "predicted"), "predicted lets jobs share GPUs"),
        (("--treatment", "nosuch"), "there is no treatment 'nosuch'"),
    ],
)
def test_what_is_wrong_is_said_before_a_folder_is_begun(
    tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    (tmp_path / "w.yaml").write_text("jobs: [{model: bert, gpus: 8, iterations: 2}]\n")
    folder = tmp_path / "run"
    ran = CliRunner().invoke(command, ["run", str(tmp_path / "w.yaml"), *words, "-o", str(folder)])
    assert said in str(ran.exception)
    assert not folder.exists()


def test_a_shorter_workload_ends_sooner_by_the_same_factor() -> None:
    jobs = (ClusterJob("a", CALM, 1, 10_000), ClusterJob("b", LOUD, 1, 10_000, 500.0))
    plain = Workload(ONE, jobs)
    long_s, short_s = (
        ClusterSimulator(each, policy("fifo"), treatment("fair")).run().makespan_s
        for each in (plain, plain.shorter(10))
    )
    assert short_s == pytest.approx(long_s / 10, rel=1e-3)
