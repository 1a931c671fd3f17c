# SPDX-License-Identifier: BSD-2-Clause
"""A job's two directions are two rates."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mltcp_tools.base.errors import UsageError
from mltcp_tools.cli.main import main
from mltcp_tools.lab.planning.cluster import plan_cluster
from mltcp_tools.lab.planning.link import score_link
from mltcp_tools.lab.planning.profile import Phase, Profile
from mltcp_tools.lab.planning.reading import parse_profiles, write_profiles
from mltcp_tools.lab.planning.topology import parse_cluster

LINK = 100e6


def test_two_all_reduces_that_fit_score_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two jobs that need 40 % of the link each, each way."""
    burst = (Phase(0.3, 0.2, LINK),)
    jobs = tmp_path / "jobs.yaml"
    jobs.write_text(write_profiles([Profile(name, 0.5, burst, burst) for name in "ab"], LINK))
    assert main(["plan", "score", str(jobs), "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["score"] > 0.99
    assert set(plan["directions"]) == {"there", "back"}
    for way in plan["directions"].values():
        assert way["load"] == pytest.approx(0.8, rel=0.01)
    assert plan["too_fast"] == []
    assert main(["plan", "score", str(jobs)]) == 0
    assert "% of the link there (score 1.000)" in capsys.readouterr().out


def test_a_phase_faster_than_the_link_is_pointed_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = {"name": "a", "period": "1s"}
    phases = "phases: [{start: 0s, duration: 100ms, rate: 184mbit}]"
    path = tmp_path / "jobs.yaml"
    path.write_text(f"link: {{rate: 100mbit}}\njobs:\n  - {{name: a, period: 1s, {phases}}}\n")
    for arguments in (["lab", "profile", str(path)], ["plan", "score", str(path)]):
        assert main(arguments) == 0, job
        out, err = capsys.readouterr()
        said = " ".join((out + err).split())
        assert "Job a: phase 1 has 184 Mbit/s, more than the link's 100 Mbit/s" in said


def test_profiles_with_answers_are_read_as_written() -> None:
    there, back = Phase(0.1, 0.2, 8e6), Phase(0.15, 0.3, 4e6)
    profiles = [Profile("a", 1.0, (there,), (back,)), Profile("b", 1.0, (), (back,))]
    assert parse_profiles(write_profiles(profiles, None), "x")[0] == profiles
    with pytest.raises(UsageError, match="phases: missing"):
        parse_profiles("jobs: [{name: a, period: 1s}]", "x")
    with pytest.raises(UsageError, match="before the previous one"):
        Profile("a", 1.0, (there,), (back, back))


def test_what_goes_one_way_is_in_the_way_of_that_way_only() -> None:
    phase = Phase(0.0, 0.6, 10e6)
    sender, receiver = Profile("s", 1.0, (phase,)), Profile("r", 1.0, (), (phase,))
    assert score_link([sender, receiver], 10e6).score == pytest.approx(1.0)
    plan = score_link([sender, Profile("t", 1.0, (phase,))], 10e6)
    assert plan.ways == ("there",)
    assert plan.score == pytest.approx(0.8, abs=0.01)
    assert score_link([receiver], 10e6).way_loads == {"back": pytest.approx(0.6)}
    # What hardly anybody uses decides on hardly anything.
    tiny = (Phase(0.0, 0.6, 0.01e6),)
    plan = score_link([Profile(name, 1.0, (phase,), tiny) for name in ("a", "b")], 10e6)
    assert plan.way_scores["back"] == pytest.approx(1.0)
    assert plan.score == pytest.approx(0.8, abs=0.01)


def test_a_placement_counts_directions_of_its_links() -> None:
    text = """
        links: [{name: l, ends: [x, y], rate: 10mbit}]
        jobs:
          - {name: a, period: 1s, phases: [{start: 0s, duration: 600ms, rate: 10mbit}]}
          - {name: b, period: 1s, back: [{start: 0s, duration: 600ms, rate: 10mbit}]}
        placements:
          - {name: path, jobs: {a: {links: [l]}, b: {links: [l]}}}
          - {name: ring, jobs: {a: {servers: [x, y]}, b: {servers: [x, y]}}}
    """
    path, ring = plan_cluster(parse_cluster(text, "x"))
    assert path.name == "path"
    assert path.score == pytest.approx(1.0)
    assert path.links["l"].way_scores == pytest.approx({"there": 1.0, "back": 1.0})
    # Around a ring both cross the link each way.
    assert ring.score == pytest.approx(0.8, abs=0.01)
