# SPDX-License-Identifier: BSD-2-Clause
"""Watching, recording and observing jobs that run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from netns.backends_here import backend_fixture, fresh_and_loaded
from netns.connected import holder
from netns.following import BURST, rules, shown
from netns.trainings import agent, training
from support.waiting import wait_for

from mltcp_tools.cli.main import main
from mltcp_tools.kernel.backends.base import Backend
from mltcp_tools.kernel.host.facts import has_congestion_control
from mltcp_tools.lab import analysis
from mltcp_tools.live.attach.restore import detach

backend = backend_fixture(fresh_and_loaded)

WITH_BBR = pytest.mark.skipif(not has_congestion_control("bbr"), reason="this kernel has no bbr")


def test_a_recording_is_a_run_folder_that_report_reads(
    backend: Backend, mark: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        agent(tmp_path, rules(mark, more=", burst_bytes: 200kB, gap: 50ms")) as running,
        training(mark) as job,
    ):
        job.ask("connect")
        running.wait_for("trained: ")
        wait_for(lambda: len(backend.flows()) == 2, "attached")
        job.tell(f"train 1000 0.1 {BURST}")  # more than are recorded, however slow the machine
        assert main(["lab", "record", "-o", str(tmp_path / "run"), "--iterations", "20"]) == 0
        assert "of trained; see them with: mltcp report" in capsys.readouterr().err
    run = analysis.load_run(tmp_path / "run")
    assert len(run.iterations) >= 20
    assert set(run.iterations["variant"]) == {"mltcp"}
    assert set(run.iterations["job"]) == {"trained"}
    # The window of the first bursts has yet to grow, and a host that is busy pauses amid them.
    assert (run.iterations["bytes"] == BURST).mean() > 0.8
    assert (run.iterations["compute_s"] > 0.05).all()
    assert len(run.flow_events) >= 20
    assert run.environment["outcome"] == "finished"
    assert run.problems == []
    assert "recorded: Attached jobs" in shown(capsys, "report", str(tmp_path / "run"))


def test_short_recording_of_a_silent_job_fails_soon(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with holder(1) as held:
        words = ["lab", "record", "-o", str(tmp_path / "run"), "--job", f"a={held.pid}"]
        assert main([*words, "--duration", "2s"]) == 1
    assert "in 10 s its connections moved nothing" in capsys.readouterr().err


def test_flows_that_nobody_attached_are_jobs_of_their_own(
    backend: Backend, mark: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "learned its iterations yet" in shown(capsys, "watch", "--once", "--wait", "0.1s")
    with training(mark, "cc=mltcp") as job:
        port = job.ask("connect")
        job.tell(f"train 1000 0.1 {BURST}")
        wait_for(
            lambda: json.loads(shown(capsys, "status", "jobs", "--json")), "a flow that is sure"
        )
        pid = job.process.pid
        (listed,) = json.loads(shown(capsys, "status", "jobs", "--json"))
        name = listed["name"]
        assert name.startswith(f"{pid} (")
        assert name.endswith(") to 127.0.0.1")
        assert listed["flows"] == 1
        (line,) = [
            each for each in shown(capsys, "status", "flows").splitlines() if name[:10] in each
        ]
        assert {str(pid), "-", str(port), "mltcp"} <= set(line.split())
        by_port = {
            each["local_port"]: each["pid"]
            for each in json.loads(shown(capsys, "status", "flows", "--json"))
        }
        assert by_port[port] == pid
        assert main(["lab", "record", "-o", str(tmp_path / "run"), "--duration", "2s"]) == 0
        assert f"iterations of {name}" in capsys.readouterr().err
        (view,) = json.loads(shown(capsys, "watch", "--once", "--json", "--wait", "2s"))
        assert (view["name"], view["flows"]) == (name, 1)
        assert view["iterations"] > 5
        assert backend.jobs() == []
    run = analysis.load_run(tmp_path / "run")
    assert set(run.iterations["job"]) == {name}
    assert (run.iterations["bytes"] == BURST).mean() > 0.8


def test_a_process_per_iteration_is_one_job(backend: Backend, mark: str, tmp_path: Path) -> None:
    with agent(tmp_path, rules(mark)) as running:
        for number in range(8):
            with training(mark) as job:
                job.ask("connect")
                wait_for(lambda job=job: job.ccs() == ["mltcp"], "attached")
                # What ends before the agent has looked once more gets no message.
                running.wait_for(
                    f"process {job.process.pid} attached"
                    if number < 5
                    else "without a message for each"
                )
        running.wait_for("trained has ended")
        said = running.stop().splitlines()
    assert sum("has ended" in each for each in said) == 1
    assert sum("attached" in each for each in said) == 6


def test_observing_changes_nothing_and_shows_all(
    backend: Backend, mark: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = "reno"
    with training(mark, f"cc={base}") as job:
        job.ask("connect")
        looking = ["attach", mark, "--job", "seen", "--kind", "all", "--cc", "observe"]
        assert main([*looking, "--gap", "50ms", "--burst-bytes", "200kB"]) == 0
        assert job.ccs() == [f"mltcp_{base}"]
        assert backend.jobs()[0].params.mechanisms == ()
        job.tell(f"train 1000 0.1 {BURST}")
        assert main(["lab", "record", "-o", str(tmp_path / "before"), "--iterations", "10"]) == 0
        flows = [flow for flow in backend.flows() if flow.sent_bytes]
        assert {(flow.gain, flow.yields) for flow in flows} == {(1.0, 0)}
        job.stop()
        assert main(["attach", mark, "--job", "seen", "--kind", "all"]) == 0
        assert job.ccs() == ["mltcp"]
        assert backend.jobs()[0].params.mechanisms is None
        job.tell(f"train 1000 0.1 {BURST}")
        assert main(["lab", "record", "-o", str(tmp_path / "after"), "--iterations", "10"]) == 0
        job.stop()
        assert {each.new for each in detach()} == {base}
        assert job.ccs() == [base]
    capsys.readouterr()
    assert main(["report", str(tmp_path / "before"), str(tmp_path / "after")]) == 0
    shown = capsys.readouterr().out
    assert f"{base} → mltcp" in shown
    assert "alone is missing" not in shown


@WITH_BBR
def test_what_can_not_be_observed_is_said(
    backend: Backend, mark: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with training(mark, "cc=bbr") as job:
        job.ask("connect")
        assert main(["attach", mark, "--job", "seen", "--kind", "all", "--cc", "observe"]) == 1
        said = capsys.readouterr().out
        assert (
            "MLTCP has no congestion control built on bbr to observe it with; `mltcp lab record"
            in said
        )
        assert job.ccs() == ["bbr"]


@WITH_BBR
def test_any_congestion_control_is_recorded_from_outside(
    mark: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with training(mark, "cc=bbr") as job:
        job.ask("connect")
        job.tell(f"train 400 0.1 {BURST}")
        run = tmp_path / "run"
        assert (
            main(["lab", "record", "-o", str(run), "--job", f"a={mark}", "--iterations", "20"]) == 0
        )
        assert "iterations of a; see them with" in capsys.readouterr().err
    found = analysis.load_run(run)
    assert set(found.iterations["variant"]) == {"bbr"}
    assert (found.iterations["compute_s"].median()) > 0.08  # it computes for 0.1 s
    # Both ends are its own, and either shows its iterations: what one sends the other receives.
    ends = found.iterations["bytes"].median() / BURST
    assert ends == pytest.approx(round(ends), rel=0.05)
    assert round(ends) in (1, 2)
    assert found.problems == []
    conditions = found.environment["conditions"]
    assert conditions["jobs"] == []
    assert conditions["links"]["lo"] > 0
    assert "bbr" in shown(capsys, "report", str(run))


def test_mistakes_in_recording(
    backend: Backend, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lab", "record", "-o", str(tmp_path / "run")]) == 2
    assert "No job is attached" in capsys.readouterr().err
    assert main(["lab", "record", "-o", str(tmp_path / "run"), "--job", "x"]) == 2
    assert "There is no job 'x'; there are: none." in capsys.readouterr().err
    (tmp_path / "file").touch()
    assert main(["lab", "record", "-o", str(tmp_path)]) == 2
    assert "isn't an empty folder" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
