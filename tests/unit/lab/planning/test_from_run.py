# SPDX-License-Identifier: BSD-2-Clause
"""Profiles from run folders."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from support.run_folders import BYTES, LONE_COMM_S, experiment, make_recording, make_run

from mltcp_tools.base.errors import UsageError
from mltcp_tools.cli.main import main
from mltcp_tools.lab.analysis import load_run
from mltcp_tools.lab.planning.from_run import profiles_of_run


@pytest.mark.parametrize("jitter", [0.0, 0.05, 0.1])
def test_all_jobs_get_the_profile_of_the_one_measured_alone(tmp_path: Path, jitter: float) -> None:
    run = load_run(make_run(tmp_path / "run", jitter=jitter))
    alone = run.iterations[
        (run.iterations["variant"] == "alone") & (run.iterations["iteration"] > 1)
    ]
    profiles = profiles_of_run(run)
    assert [profile.name for profile in profiles] == ["job-1", "job-2", "job-3", "job-4"]
    for profile in profiles:
        (phase,) = profile.phases
        period_s = float((alone["end_s"] - alone["start_s"]).mean())
        assert profile.period_s == pytest.approx(period_s, rel=0.001)
        assert profile.bytes == pytest.approx(BYTES)
        assert phase.duration_s == pytest.approx(LONE_COMM_S)
        assert phase.end_s == pytest.approx(profile.period_s)


def test_a_named_variant_shows_jobs_as_others_slowed_them_down(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path / "run"))
    for name in ("cubic", "mltcp"):
        for profile in profiles_of_run(run, name):
            assert profile.bytes == pytest.approx(BYTES)
    slow, quick = profiles_of_run(run, "cubic")[0], profiles_of_run(run)[0]
    assert slow.phases[0].duration_s > 1.2 * quick.phases[0].duration_s


def test_a_recording_has_one_variant(tmp_path: Path) -> None:
    folder = make_recording(tmp_path / "run", "mltcp")
    profiles = profiles_of_run(load_run(folder))
    assert len(profiles) == 4
    assert main(["plan", "score", str(folder)]) == 2  # a recording knows no link's rate
    assert main(["plan", "score", str(folder), "--rate", "200mbit"]) == 0


def test_several_bursts_are_several_phases(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    table = pd.read_csv(folder / "bursts.csv")
    half = (table["end_s"] - table["start_s"]) / 2
    first = table.assign(end_s=table["start_s"] + 0.8 * half, bytes=BYTES // 2)
    second = table.assign(start_s=table["start_s"] + half, bytes=BYTES // 2, burst=2)
    pd.concat([first, second]).to_csv(folder / "bursts.csv", index=False)
    profile = profiles_of_run(load_run(folder))[0]
    assert len(profile.phases) == 2
    assert profile.bytes == pytest.approx(BYTES)
    assert profile.phases[1].start_s - profile.phases[0].end_s == pytest.approx(
        0.1 * LONE_COMM_S, rel=0.01
    )


@pytest.mark.parametrize(
    ("keep", "variant", "complaint"),
    [
        ("iteration < 2", None, "job job-1 has one iteration only"),
        ("iteration < 0", None, "holds no iterations"),
        ("variant != 'alone'", None, "lacks the variant alone"),
        ("iteration > 0", "bbr", "has no variant 'bbr'; it has alone, cubic, mltcp"),
    ],
)
def test_what_makes_no_profile(
    tmp_path: Path, keep: str, variant: str | None, complaint: str
) -> None:
    folder = make_run(tmp_path / "run", experiment())
    table = pd.read_csv(folder / "iterations.csv").query(keep)
    table.to_csv(folder / "iterations.csv", index=False)
    with pytest.raises(UsageError, match=complaint):
        profiles_of_run(load_run(folder), variant)


def test_zero_bytes_are_no_profile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_run(tmp_path / "run")
    table = pd.read_csv(folder / "bursts.csv")
    table.assign(bytes=0).to_csv(folder / "bursts.csv", index=False)
    assert main(["lab", "profile", str(folder)]) == 2
    assert "zero bytes" in capsys.readouterr().err
