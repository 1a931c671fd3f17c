# SPDX-License-Identifier: BSD-2-Clause
"""Circles, rotations and scores: against cases worked out by hand and against trying everything."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.mistakes import refused
from support.run_folders import make_run
from support.shown import fits

from mltcp_tools.base.errors import UsageError
from mltcp_tools.cli.main import main
from mltcp_tools.lab.planning.circle import common_multiple, make_circle
from mltcp_tools.lab.planning.link import score_link
from mltcp_tools.lab.planning.profile import Phase, Profile
from mltcp_tools.lab.planning.rotations import Problem, SharedLink, turned
from mltcp_tools.lab.planning.search import centre, descend, try_all


def one_phase(name: str, period_s: float, share: float, rate_bps: float = 1e9) -> Profile:
    length_s = share * period_s
    return Profile(name, period_s, (Phase(period_s - length_s, length_s, rate_bps),))


def brute_force(problem: Problem) -> float:
    """The best mean score over all rotations within an iteration, by plain loops."""
    best = -math.inf
    for shifts in itertools.product(*(range(len(demand)) for demand in problem.demand)):
        scores = []
        for link in problem.links:
            steps = math.lcm(*(len(problem.demand[j]) for j in link.jobs))
            excess = 0.0
            for step in range(steps):
                total = sum(
                    times * problem.demand[j][(step - shifts[j]) % len(problem.demand[j])]
                    for j, times in zip(link.jobs, link.times, strict=True)
                )
                excess += max(0.0, total - link.capacity)
            scores.append(1 - excess / (steps * link.capacity))
        best = max(best, sum(scores) / len(scores))
    return best


@st.composite
def problems(draw: st.DrawFn, links: int) -> Problem:
    jobs = draw(st.integers(2, 3))
    rates = st.integers(0, 6).map(lambda n: n / 4)
    demand = [
        np.array(draw(st.lists(rates, min_size=period, max_size=period)))
        for period in (draw(st.sampled_from([2, 3, 4, 6])) for _ in range(jobs))
    ]
    times = st.integers(1, 2)
    shared = [SharedLink(1.0, tuple(range(jobs)), tuple(draw(times) for _ in range(jobs)))]
    if links == 2:
        shared.append(SharedLink(draw(st.sampled_from([0.5, 2.0])), (0, 1), (1, 1)))
    return Problem(demand, shared)


QUARTER, LATE = np.array([0, 0, 0, 0, 0.25, 0]), np.array([0.25, 0.25, 1, 1, 1, 1.25])


@pytest.mark.parametrize("links", [1, 2])
def test_trying_all_agrees_with_brute_force(links: int) -> None:
    @settings(max_examples=60)
    @given(problems(links))
    @example(Problem([QUARTER, LATE], [SharedLink(1.0, (0, 1), (1, 1))]))
    def check(problem: Problem) -> None:
        best = brute_force(problem)
        assert problem.score(try_all(problem)) == pytest.approx(best)
        assert problem.bound() >= best - 1e-9
        quick = descend(problem)
        assert problem.score(quick) <= best + 1e-9
        assert problem.score(centre(problem, quick)) >= problem.score(quick) - 1e-9

    check()


@settings(max_examples=100)
@given(problems(2), st.lists(st.integers(-50, 50), min_size=3, max_size=3))
def test_turning_all_together_changes_no_score(problem: Problem, shifts: list[int]) -> None:
    own = shifts[: len(problem.demand)]
    found = turned(problem, own)
    assert problem.score(found) == pytest.approx(problem.score(own))
    for shift, count in zip(found, problem.ranges, strict=True):
        assert 0 <= shift < count


def test_repeats_of_a_job_share_the_circle() -> None:
    # 40 and 60 ms on 120 ms: 10 ms bursts every 40 and every 60 ms fit with one shift (Cassini's
    # example of a unified circle); laid out over the whole circle, they would not.
    jobs = [one_phase("a", 0.04, 0.25), one_phase("b", 0.06, 1 / 6)]
    plan = score_link(jobs, 1e9)
    assert plan.circle.perimeter_s == pytest.approx(0.12)
    assert plan.circle.repeats == {"a": 3, "b": 2}
    assert plan.score == pytest.approx(1.0)
    assert plan.unshifted < 1
    assert 0 <= plan.shifts["b"] < 0.06


def test_score_falls_with_what_does_not_fit() -> None:
    # Two bursts of 45 of 72 steps: a quarter of the circle has twice the rate, wherever they are.
    plan = score_link([one_phase("a", 0.1, 0.625), one_phase("b", 0.1, 0.625)], 1e9)
    assert plan.score == pytest.approx(0.75)
    assert plan.unshifted == pytest.approx(0.375)
    assert plan.optimum.proven


def test_shifted_jobs_have_room_on_both_sides() -> None:
    jobs = [one_phase(f"j{n}", 0.36, 1 / 6) for n in range(4)]
    shifts = sorted(score_link(jobs, 1e9).shifts.values())
    gaps = np.diff([*shifts, shifts[0] + 0.36])
    assert gaps == pytest.approx([0.09] * 4, abs=0.0101)  # two steps of 5 degrees


@pytest.mark.parametrize("jobs", [8, 32])
def test_many_jobs_are_planned_with_a_certificate(jobs: int) -> None:
    generator = np.random.default_rng(jobs)
    shares = generator.dirichlet(np.ones(jobs) * 3) * 0.97
    profiles = [one_phase(f"j{n}", 0.4, share) for n, share in enumerate(shares)]
    plan = score_link(profiles, 1e9)
    assert plan.unshifted < 0.6
    assert plan.score > 0.95
    assert plan.score <= plan.optimum.bound <= 1.0
    # The certificate is about the score that the shifts really have.
    assert plan.problem.score(plan.optimum.shifts) == pytest.approx(plan.score)


def test_what_cannot_be_proven_is_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    jobs = []
    for number in range(8):
        parts = int(generator.integers(1, 4))
        lengths = generator.uniform(15, 45, parts)
        rates = generator.uniform(0.2, 0.9, parts)
        phases = ", ".join(
            f"{{start: {300 * n / parts}ms, duration: {length}ms, rate: {rate}gbit}}"
            for n, (length, rate) in enumerate(zip(lengths, rates, strict=True))
        )
        jobs.append(f"  - {{name: j{number}, period: 300ms, phases: [{phases}]}}")
    path = tmp_path / "jobs.yaml"
    path.write_text("link: {rate: 1gbit}\njobs:\n" + "\n".join(jobs) + "\n")
    assert main(["plan", "score", str(path)]) == 0
    assert "and no shifts score higher than" in capsys.readouterr().out


@given(
    st.lists(st.integers(10, 400).map(lambda n: n / 1000), min_size=1, max_size=4),
    st.sampled_from([0.01, 0.03, 0.1]),
)
@example([0.011, 0.099], 0.01)  # 9 * 0.011 isn't 0.099 in its last bit
def test_common_multiple_is_the_least(periods: list[float], tolerance: float) -> None:
    found = common_multiple(np.array(periods), tolerance)
    counts = [math.floor(found / period * (1 + 1e-9)) for period in periods]
    for period, count in zip(periods, counts, strict=True):
        assert period * (1 - 1e-6) <= found / count <= period * (1 + tolerance) * (1 + 1e-6)
    assert found <= max(periods) / tolerance * (1 + 1e-6)
    for shorter in np.linspace(max(periods), found * (1 - 1e-6), 200, endpoint=False):
        fits = [
            math.floor(shorter / period) * period * (1 + tolerance) >= shorter for period in periods
        ]
        assert not all(fits) or found == pytest.approx(max(periods), rel=1e-9)


def test_stretch_is_what_rounding_costs() -> None:
    jobs = [one_phase("a", 0.100, 0.3), one_phase("b", 0.101, 0.3)]
    plan = score_link(jobs, 1e9, tolerance=0.02)
    assert plan.circle.perimeter_s == pytest.approx(0.101)
    assert plan.circle.stretch == pytest.approx({"a": 0.01, "b": 0.0})
    exact = make_circle(jobs, 5.0, 0.0)
    assert exact.perimeter_s == pytest.approx(10.1)
    assert exact.stretch == pytest.approx({"a": 0.0, "b": 0.0})


def test_demand_keeps_every_bit() -> None:
    profile = Profile("a", 1.0, (Phase(0.111, 0.2, 3e6), Phase(0.5, 0.333, 1e6)))
    for steps in (7, 72, 100):
        demand = profile.demand(steps, period_s=1.05)
        assert demand.sum() * 1.05 / steps == pytest.approx(profile.bytes * 8)
        assert demand.max() <= 3e6 * (1 + 1e-9)


@pytest.mark.parametrize(
    ("profile", "complaint"),
    [
        (("a", -1.0, ()), "more than 0 s"),
        (("a", 1.0, (Phase(0.0, 0.5, 1e6), Phase(0.4, 0.1, 1e6))), "before the previous one"),
        (("a", 1.0, (Phase(0.9, 0.2, 1e6),)), "after the iteration"),
    ],
)
def test_impossible_profiles(profile: tuple[str, float, tuple[Phase, ...]], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        Profile(*profile)


PHASES = "phases: [{start: 20ms, duration: 30ms, rate: 100mbit}]"


@pytest.mark.parametrize(
    ("text", "options", "complaint"),
    [
        ("", [], "jobs.yaml:1: the file is empty"),
        ("jobs: [{name: a, period: 100ms}]", [], "jobs[1].phases: missing"),
        (f"jobs: [{{name: a, period: 100ms, {PHASES}}}]", [], "give its rate with --rate"),
        (f"link: {{rate: 0mbit}}\njobs: [{{name: a, period: 1s, {PHASES}}}]", [], "more than 0"),
        (
            f"jobs: [{{name: a, period: 1s, {PHASES}}}, {{name: a, period: 1s, {PHASES}}}]",
            [],
            "Two jobs are called 'a'",
        ),
        (
            f"jobs:\n- {{name: a, period: 99.9ms, {PHASES}}}\n"
            f"- {{name: b, period: 100.07ms, {PHASES}}}",
            ["--rate", "1gbit", "--tolerance", "0"],
            "no common multiple",
        ),
        (f"jobs: [{{name: a, period: 1s, {PHASES}}}]", ["--variant", "x"], "leave out --variant"),
    ],
)
def test_bad_files_are_one_sentence(
    text: str,
    options: list[str],
    complaint: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "jobs.yaml"
    path.write_text(text)
    assert complaint in refused(capsys, "plan", "score", str(path), *options)


def test_command_scores_a_run_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / "run")
    assert main(["plan", "score", str(run), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "mltcp-plan-link/1"
    assert document["score"] == pytest.approx(1.0)
    assert document["proven"] is True
    assert main(["plan", "score", str(run)]) == 0
    out = capsys.readouterr().out
    assert "score 1.000" in out
    fits(out)
