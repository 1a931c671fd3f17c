# SPDX-License-Identifier: BSD-2-Clause
"""A job's two directions are two rates, and two jobs of a host are two jobs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.captures import Sent, answered, segments, write_capture

from mltcp_tools.base.errors import UsageError
from mltcp_tools.cli.main import main
from mltcp_tools.lab.emulator.job import JobSpec
from mltcp_tools.lab.planning.cluster import plan_cluster
from mltcp_tools.lab.planning.link import score_link
from mltcp_tools.lab.planning.reading import parse_profiles, write_profiles
from mltcp_tools.lab.planning.topology import parse_cluster
from mltcp_tools.lab.profiling.capture import Series, owners_of, read_capture
from mltcp_tools.lab.profiling.from_capture import profile_of_series, profiles_of_capture
from mltcp_tools.lab.profiling.profile import Phase, Profile
from mltcp_tools.lab.profiling.selector import Selector

RATE = 95e6
LINK = 100e6
# Two jobs that need 40 % of the link each, each way.
JOB = JobSpec(bytes_per_iteration=2_500_000, compute_s=0.3, iterations=20)
BURST_S = JOB.bytes_per_iteration * 8 / RATE


def all_reduce(number: int, spec: JobSpec = JOB) -> list[Sent]:
    """A job of two hosts, each of which sends the other as much."""
    own = segments(spec, RATE, f"10.0.{number}.1", port=5000 + number, size=9000)
    return list(answered(own, f"10.0.{number}.2"))


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    late = replace(JOB, start_delay_s=0.25)
    return write_capture(tmp_path / "two.pcap", [*all_reduce(1), *all_reduce(2, late)])


def test_two_all_reduces_that_fit_score_1(
    capture: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = tmp_path / "jobs.yaml"
    assert (
        main(["lab", "profile", "--pcap", str(capture), "--rate", "100mbit", "-o", str(found)]) == 0
    )
    assert "more than the link's" not in capsys.readouterr().err
    assert main(["plan", "score", str(found), "--rate", "100mbit", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["score"] > 0.99
    assert set(plan["directions"]) == {"there", "back"}
    for way in plan["directions"].values():
        assert way["load"] == pytest.approx(2 * BURST_S / (0.3 + BURST_S) * RATE / LINK, rel=0.02)
    assert plan["too_fast"] == []
    assert main(["plan", "score", str(found), "--rate", "100mbit"]) == 0
    assert "% of the link there (score 1.000)" in capsys.readouterr().out


@pytest.mark.parametrize(
    "selected",
    [
        [],
        ["10.0.1.1,10.0.1.2", "10.0.2.1,10.0.2.2"],
        [":5001", ":5002"],
        ["10.0.1.1:5001", "10.0.2.1:5002"],
        ["10.0.1.0/24", "10.0.2.0/24"],
    ],
)
def test_however_a_job_is_named_its_directions_stay_apart(
    capture: Path, selected: list[str]
) -> None:
    selectors = [Selector.parse(f"job-{n}={each}") for n, each in enumerate(selected, 1)]
    names = [each.job for each in selectors] or ["10.0.1.1", "10.0.2.1"]
    profiles = profiles_of_capture(read_capture(capture, selectors=selectors))
    assert [each.name for each in profiles] == names
    for profile in profiles:
        assert profile.period_s == pytest.approx(0.3 + BURST_S, rel=0.01)
        for (phase,) in (profile.phases, profile.back):
            assert phase.rate_bps == pytest.approx(RATE, rel=0.05)
            assert phase.bytes == pytest.approx(2_500_000, rel=0.01)


def test_answers_come_when_they_come() -> None:
    there, back = np.zeros(3000), np.zeros(3000)
    there[1000:1400] = 1000.0
    back[1500:2300] = 250.0
    series = Series(1e-4, np.tile(there, 12), np.tile(back, 12))
    profile = profile_of_series("a", series)
    (sent,), (answer,) = profile.phases, profile.back
    assert sent.rate_bps == pytest.approx(80e6, rel=0.05)
    assert answer.rate_bps == pytest.approx(20e6, rel=0.05)
    assert answer.start_s - sent.end_s == pytest.approx(0.01, rel=0.1)
    assert profile.communication_s == pytest.approx(0.12, rel=0.05)


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
    with pytest.raises(UsageError, match="before the one ahead"):
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


def test_hosts_that_send_each_other_as_much_are_one_job() -> None:
    sent = {("a1", "b"): 100.0, ("b", "a1"): 1.0, ("c", "b"): 10.0}
    addresses = {"a1": "10.0.0.5", "b": "10.0.0.1", "c": "10.0.0.9"}
    named = {(addresses[a], addresses[b]): size for (a, b), size in sent.items()}
    assert owners_of(named) == {
        ("10.0.0.5", "10.0.0.1"): ("10.0.0.5", "there"),
        ("10.0.0.1", "10.0.0.5"): ("10.0.0.5", "back"),
        ("10.0.0.9", "10.0.0.1"): ("10.0.0.9", "there"),
    }
    # A parameter server of two jobs has more peers than each of them.
    both = {("10.0.0.1", "10.0.0.2"): 10.0, ("10.0.0.2", "10.0.0.1"): 10.0}
    both |= {("10.0.0.1", "10.0.0.3"): 10.0, ("10.0.0.3", "10.0.0.1"): 10.0}
    assert {job for job, _ in owners_of(both).values()} == {"10.0.0.2", "10.0.0.3"}


def test_jobs_that_never_rest_together_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two jobs of one period can't be told apart."""
    long = JobSpec(bytes_per_iteration=3_562_500, compute_s=0.2, iterations=20)
    short = JobSpec(bytes_per_iteration=1_128_125, compute_s=0.31, iterations=20, start_delay_s=0.2)
    sent = [
        *segments(long, RATE, "10.0.1.1", port=5001, size=9000),
        *segments(short, RATE / 2, "10.0.1.1", port=5002, size=9000),
    ]
    path = write_capture(tmp_path / "x.pcap", sent)
    assert main(["lab", "profile", "--pcap", str(path), "--json"]) == 2
    assert "Name one job's own connections with --select" in capsys.readouterr().err


@pytest.mark.parametrize("ports", [1, 2])
def test_a_host_that_reaches_several_ports_is_pointed_out(
    ports: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    quick = JobSpec(bytes_per_iteration=2_500_000, compute_s=0.787, iterations=30)
    slow = JobSpec(bytes_per_iteration=2_500_000, compute_s=1.042, iterations=24)
    sent = [
        each
        for number, spec in enumerate((quick, slow)[:ports], 1)
        for each in segments(spec, RATE, "10.0.1.1", port=5000 + number, size=9000)
    ]
    path = write_capture(tmp_path / "x.pcap", sent)
    assert main(["lab", "profile", "--pcap", str(path)]) == 0
    assert ("to 2 ports; if these are several jobs" in capsys.readouterr().err) == (ports == 2)
    if ports == 2:
        named = ["--select", "a=10.0.1.1:5001", "--select", "b=10.0.1.1:5002"]
        assert main(["lab", "profile", "--pcap", str(path), *named]) == 0
        assert "several jobs" not in capsys.readouterr().err
