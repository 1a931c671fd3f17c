# SPDX-License-Identifier: BSD-2-Clause
"""Profiles from packet captures that follow the schedule of emulated jobs."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.captures import LINKS, MSS, Sent, segments, write_capture
from support.shown import fits

from mltcp_tools.base.errors import UsageError
from mltcp_tools.cli.main import main
from mltcp_tools.lab.emulator.job import JobSpec, compute_times
from mltcp_tools.lab.profiling.capture import Series, read_capture
from mltcp_tools.lab.profiling.from_capture import profile_of_series, profiles_of_capture
from mltcp_tools.lab.profiling.streams import Stream
from mltcp_tools.lab.simulator.schedules import SCHEDULES, ScheduledJob, simulate

RATE = 191e6
JOB = JobSpec(bytes_per_iteration=2_500_000, compute_s=0.34, iterations=20)
OTHER = JobSpec(bytes_per_iteration=1_250_000, compute_s=0.2, iterations=40, seed=2)


def true_period(spec: JobSpec) -> float:
    """Mean iteration time; without the first compute, as the capture begins with a burst."""
    times = list(compute_times(spec))[1:]
    return float(np.mean(times)) + spec.bytes_per_iteration * 8 / RATE


def sent_by(*specs: JobSpec, size: int = 9000) -> list[Sent]:
    return [
        each
        for number, spec in enumerate(specs, 1)
        for each in segments(spec, RATE, f"10.0.{number}.1", size=size)
    ]


@pytest.mark.parametrize("jitter", [0.0, 0.05, 0.1])
def test_period_and_bytes_of_two_jobs(jitter: float, tmp_path: Path) -> None:
    specs = [replace(JOB, jitter=jitter), replace(OTHER, jitter=jitter)]
    path = write_capture(tmp_path / "x.pcap", sent_by(*specs, size=MSS))
    profiles = profiles_of_capture(read_capture(path))
    assert [profile.name for profile in profiles] == ["10.0.1.1", "10.0.2.1"]
    for profile, spec in zip(profiles, specs, strict=True):
        assert profile.period_s == pytest.approx(true_period(spec), rel=0.02)
        assert profile.bytes == pytest.approx(spec.bytes_per_iteration, rel=0.02)
        (phase,) = profile.phases
        length_s = spec.bytes_per_iteration * 8 / RATE
        assert phase.duration_s == pytest.approx(length_s, rel=0.05)
        assert phase.end_s == pytest.approx(profile.period_s, rel=0.01)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("seed", range(4))
def test_jobs_that_collide_keep_period_and_bytes(schedule: str, seed: int) -> None:
    generator = np.random.default_rng(seed)
    jobs = [
        ScheduledJob(
            name,
            generator.uniform(0, 0.4),
            list(0.34 * (1 + 0.1 * generator.standard_normal(60))),
            0.1046,
        )
        for name in ("a", "b")
    ]
    rows = simulate(schedule, jobs)
    for job in jobs:
        own = rows[rows["job"] == job.name]
        values = np.zeros(int(own["end_s"].max() / 1e-4) + 1)
        for start_s, end_s in zip(own["start_s"], own["end_s"], strict=True):
            first, last = int(start_s / 1e-4), int(end_s / 1e-4)
            values[first:last] += 2_500_000 / (last - first)
        profile = profile_of_series(job.name, Series(1e-4, values))
        assert profile.period_s == pytest.approx(np.diff(own["end_s"]).mean(), rel=0.02)
        assert profile.bytes == pytest.approx(2_500_000, rel=0.02)


def test_several_phases_of_different_rates() -> None:
    iteration = np.zeros(3000)
    iteration[1000:1400] = 1000.0
    iteration[1800:2600] = 400.0
    profile = profile_of_series("a", Series(1e-4, np.tile(iteration, 12)))
    assert profile.period_s == pytest.approx(0.3, rel=0.01)
    first, second = profile.phases
    assert first.rate_bps == pytest.approx(80e6, rel=0.05)
    assert second.rate_bps == pytest.approx(32e6, rel=0.05)
    assert first.duration_s == pytest.approx(0.04, rel=0.05)
    assert second.start_s - first.end_s == pytest.approx(0.04, rel=0.05)


def test_a_multiple_of_the_period_is_taken_apart() -> None:
    # Compute times that repeat every five iterations: the whole of these is the period, too.
    values, now_s = np.zeros(200_000), 0.1
    for number in range(100):
        values[int(now_s * 1e4) : int(now_s * 1e4) + 400] = 600.0
        now_s += 0.04 + 0.1 * (1.1, 0.9, 1.05, 0.95, 1.0)[number % 5]
    profile = profile_of_series("a", Series(1e-4, values))
    assert profile.period_s == pytest.approx(0.14, rel=0.01)
    assert profile.bytes == pytest.approx(240_000, rel=0.01)


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("source", ["10.0.1.1", "fd00::1"])
def test_link_types_and_addresses(link: str, source: str, tmp_path: Path) -> None:
    sent = list(segments(JOB, RATE, source, size=20_000))
    path = write_capture(tmp_path / "x.pcap", sent, link=link)
    capture = read_capture(path)
    assert list(capture.jobs) == [source]
    assert capture.jobs[source].bytes.sum() == 20 * 2_500_000
    assert capture.missing == capture.left_out == 0


@pytest.mark.parametrize("form", ["micro", "nano", "ng", "gzip", "cut"])
def test_forms_of_captures(form: str, tmp_path: Path) -> None:
    sent = list(segments(JOB, RATE, "10.0.1.1", size=20_000))
    path = write_capture(tmp_path / "x.pcap", sent, ng=form == "ng", nano=form == "nano")
    if form == "gzip":
        path = tmp_path / "x.pcap.gz"
        path.write_bytes(gzip.compress((tmp_path / "x.pcap").read_bytes()))
    if form == "cut":
        path.write_bytes(path.read_bytes()[:-50])
    (profile,) = profiles_of_capture(read_capture(path))
    assert profile.period_s == pytest.approx(true_period(JOB), rel=0.02)
    assert profile.bytes == pytest.approx(2_500_000, rel=0.02)


def test_sent_again_and_captured_twice_counts_once(tmp_path: Path) -> None:
    generator = np.random.default_rng(1)
    # The sequence numbers wrap around in the third iteration.
    sent = list(segments(JOB, RATE, "10.0.1.1", size=9000, first_sequence=(1 << 32) - 6_000_000))
    seen = []
    for each in sent:
        late = replace(each, time_s=each.time_s + 0.002)
        fate = generator.random()
        if fate < 0.05:
            seen.append(late)  # lost ahead of the capture: only the second one is there
        elif fate < 0.1:
            seen += [each, late]
        else:
            seen.append(each)
    path = write_capture(tmp_path / "x.pcap", seen)
    capture = read_capture(path)
    assert capture.jobs["10.0.1.1"].bytes.sum() == 20 * 2_500_000
    assert capture.missing == 0


@given(st.integers(0, (1 << 32) - 1), st.lists(st.integers(1, 40), min_size=1), st.randoms())
def test_stream_counts_every_byte_once(first: int, lengths: list[int], random: object) -> None:
    edges = np.concatenate([[0], np.cumsum(lengths)])
    parts = [(int(a), int(b)) for a, b in pairwise(edges)]
    shuffled = parts + parts[: len(parts) // 2]
    random.shuffle(shuffled)
    stream = Stream()
    stream.begin((first - 1) % (1 << 32))
    counted = sum(stream.add((first + a) % (1 << 32), b - a) for a, b in shuffled)
    assert counted == edges[-1]
    assert stream.missing == 0


def test_stream_knows_what_never_came_and_new_connections() -> None:
    stream = Stream()
    assert stream.add(100, 50) == 50
    assert stream.add(200, 50) == 50
    assert stream.missing == 50
    assert stream.add(100, 150) == 50
    assert stream.add(3_000_000_000, 10) == 10  # the same ports, another connection
    assert stream.missing == 0
    stream.begin(7)
    assert stream.add(8, 5) == 5


def test_bins_widen_with_the_capture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mltcp_tools.lab.profiling.capture._MOST_BINS", 1 << 14)
    path = write_capture(tmp_path / "x.pcap", sent_by(JOB, OTHER))
    capture = read_capture(path)
    for series, spec in zip(capture.jobs.values(), (JOB, OTHER), strict=True):
        assert series.width_s > 1e-4
        assert series.bytes.size <= 1 << 13
        assert series.bytes.sum() == spec.bytes_per_iteration * (spec.iterations or 0)
    for profile, spec in zip(profiles_of_capture(capture), (JOB, OTHER), strict=True):
        assert profile.period_s == pytest.approx(true_period(spec), rel=0.02)


def test_near_tells_apart_what_repeats_within_an_iteration() -> None:
    spec = replace(JOB, bursts=3)
    values = np.zeros(100_000)
    for each in segments(spec, RATE, "10.0.1.1", size=9000):
        values[int(each.time_s / 1e-4)] += each.payload
    series = Series(1e-4, np.trim_zeros(values))
    assert profile_of_series("a", series).period_s == pytest.approx(true_period(JOB) / 3, rel=0.02)
    near = profile_of_series("a", series, near_s=0.42)
    assert near.period_s == pytest.approx(true_period(JOB), rel=0.02)
    assert len(near.phases) == 3


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        (np.zeros(1000), "zero bytes"),
        (np.r_[np.zeros(3400), np.full(1046, 2390.0)], "no period found"),
        (np.r_[np.full(50, 2390.0)], "less than two iterations"),
        (np.random.default_rng(0).poisson(10, 200_000) * 1000.0, "no period found"),
    ],
)
def test_traffic_without_iterations(values: np.ndarray, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        profile_of_series("a", Series(1e-4, values))


def test_command_profiles_a_capture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_capture(tmp_path / "x.pcapng", sent_by(JOB, OTHER), ng=True)
    output = tmp_path / "jobs.yaml"
    options = ["--pcap", str(path), "--select", "a=10.0.1.1", "--select", "b=10.0.2.1"]
    assert main(["lab", "profile", *options, "-o", str(output), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "mltcp-profiles/1"
    assert set(document["jobs"]) == {"a", "b"}
    assert main(["lab", "profile", str(output), "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    for job, found in document["jobs"].items():
        assert again["jobs"][job]["bytes"] == pytest.approx(found["bytes"], rel=1e-3)
    assert main(["plan", "score", str(output), "--rate", "200mbit"]) == 0
    assert main(["lab", "profile", *options]) == 0
    fits(capsys.readouterr().out)


def test_bad_captures_are_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "text.pcap"
    text.write_text("this is not a capture, is it")
    silent = write_capture(tmp_path / "silent.pcap", [Sent(0.0, "10.0.1.1", 5001, 1, 0)])
    short = write_capture(tmp_path / "short.pcap", sent_by(replace(JOB, iterations=1)))
    good = write_capture(tmp_path / "good.pcap", sent_by(JOB, size=20_000))
    wireless = tmp_path / "wireless.pcap"
    wireless.write_bytes(
        good.read_bytes()[:20] + (127).to_bytes(4, "little") + good.read_bytes()[24:]
    )
    for arguments, complaint in (
        (["--pcap", str(text)], "is not a packet capture"),
        (["--pcap", str(tmp_path / "none")], "doesn't exist"),
        (["--pcap", str(silent)], "zero bytes of TCP payload"),
        (["--pcap", str(short)], "Job 10.0.1.1: no period found"),
        (["--pcap", str(wireless)], "link type 127 isn't known"),
        (["--pcap", str(good), "--select", "a=10.9.9.9"], "has no flow of the jobs named"),
        (["--pcap", str(good), "--select", "10.0.1.1"], "is not a job"),
        ([str(good), "--pcap", str(good)], "Name either a RUN or a capture"),
        ([str(good), "--near", "1s"], "belong to --pcap"),
    ):
        assert main(["lab", "profile", *arguments]) == 2, arguments
        err = capsys.readouterr().err
        assert complaint in err
        assert err.count("\n") == 1
