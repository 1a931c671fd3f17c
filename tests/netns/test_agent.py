# SPDX-License-Identifier: BSD-2-Clause
"""The agent as a process: its signals, its rules, its privileges, and what it leaves."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from netns.backends_here import backend_fixture, fresh_and_loaded
from netns.connected import FIRST_CC, holder, namespace
from netns.following import BURST, DEFAULT, rules, shown
from netns.trainings import Agent, agent, training
from support.waiting import PATIENCE_S, wait_for

from mltcp_tools.base.errors import BusyError, HostError
from mltcp_tools.cli.main import main
from mltcp_tools.kernel.backends.base import Backend
from mltcp_tools.live.agent import follow
from mltcp_tools.live.attach.restore import detach

backend = backend_fixture(fresh_and_loaded)


def test_detach_by_hand_survives_sighup_and_can_be_undone(
    backend: Backend, mark: str, tmp_path: Path
) -> None:
    with agent(tmp_path, rules(mark)) as running, training(mark) as job:
        job.ask("connect")
        wait_for(lambda: job.ccs() == ["mltcp"], "attached")
        assert main(["detach", "trained"]) == 0
        running.wait_for("detached by hand, and left detached; `mltcp attach")
        assert job.ccs() == [DEFAULT]
        running.write(rules(mark, more=", slope: 2"))
        running.process.send_signal(signal.SIGHUP)
        wait_for(lambda: running.said().count("Following ") == 2, "the new rules are read")
        job.ask("connect")
        wait_for(lambda: job.ccs()[1] == "mltcp", "the next one, by the new rules")
        assert job.ccs() == [DEFAULT, "mltcp"]
        back = ["attach", mark, "--job", "trained", "--kind", "all"]
        assert main(back) == 0
        running.wait_for("given back")
        assert job.ccs() == ["mltcp"] * 2
        running.stop()
        assert job.ccs() == [DEFAULT] * 2


def test_what_is_moved_from_the_agents_job_is_told(
    backend: Backend, mark: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with agent(tmp_path, rules(mark)) as running, training(mark) as job:
        job.ask("connect")
        wait_for(lambda: job.ccs() == ["mltcp"], "attached")
        taking = ["attach", mark, "--job", "gamma", "--kind", "all"]
        assert main(taking) == BusyError.exit_code
        assert "trained -> gamma" in capsys.readouterr().err
        assert main([*taking, "--move"]) == 0
        assert "job trained -> gamma, tagged" in capsys.readouterr().out
        running.wait_for("moved by hand to job gamma, job trained -> gamma")
        running.stop()
        assert job.ccs() == ["mltcp"]  # the agent's no more
        assert {each.new for each in detach(job="gamma")} == {DEFAULT}
        assert job.ccs() == [DEFAULT]


def test_the_agent_takes_in_what_hooks_say(
    backend: Backend, mark: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A job that names itself, whose iterations come from the training loop."""
    with agent(tmp_path, rules(mark, job=None)) as running:
        environment = {"MLTCP_AGENT_SOCKET": str(running.socket), "MLTCP_JOB": "own-name"}
        with (
            training(mark, "hooks", **environment) as job,
            training("unmarked", "hooks", **environment) as stranger,
        ):
            job.ask("connect")
            stranger.ask("connect")
            stranger.tell(f"train 100 0.02 {BURST}")
            job.tell(f"train 1000 0.05 {BURST}")
            running.wait_for("own-name: 2 connections")
            running.wait_for("hooks: period")
            wait_for(
                lambda: " hooks " in shown(capsys, "watch", "--once", "--wait", "0.1s"), "shown"
            )
            (view,) = json.loads(shown(capsys, "watch", "--once", "--json", "--wait", "0.1s"))
            assert view["name"] == "own-name"
            assert 0.045 < view["metadata"]["period_s"] < job.stop()
            stranger.answer()
            assert stranger.ccs() == [DEFAULT]
            running.stop()
            assert running.process.returncode == 0
            assert job.ccs() == [DEFAULT]
    assert "own-name: 2 connections restored" in running.said()
    assert not running.socket.exists()


def test_on_sigterm_it_keeps_where_told(backend: Backend, mark: str, tmp_path: Path) -> None:
    with agent(tmp_path, rules(mark, on_stop="keep")) as running, training(mark) as job:
        job.ask("connect")
        running.wait_for("trained: ")
        wait_for(lambda: job.ccs() == ["mltcp"], "attached")
        running.stop(signal.SIGTERM)
        assert running.process.returncode == 0
        assert job.ccs() == ["mltcp"]
        with agent(tmp_path, rules(mark)) as next_one:  # takes it over
            next_one.wait_for("trained: ")
            next_one.stop()
        assert next_one.process.returncode == 0
        assert job.ccs() == [DEFAULT]


def test_sighup_reads_the_rules_again_and_survives_bad_ones(
    backend: Backend, mark: str, tmp_path: Path
) -> None:
    with agent(tmp_path, rules("nobody-has-this")) as running, training(mark) as job:
        job.ask("connect")
        for bad in ("rules: [", "rules: [{comand: x}]", ""):
            before = running.said().count("stay as they were")
            running.write(bad)
            running.process.send_signal(signal.SIGHUP)
            wait_for(lambda n=before: running.said().count("stay as they were") > n, "kept")
        running.write(rules(mark, job="second"))
        running.process.send_signal(signal.SIGHUP)
        running.wait_for("second: ")
        wait_for(lambda: job.ccs() == ["mltcp"], "attached by the new rules")
        running.write(rules(mark, job="third"))
        running.process.send_signal(signal.SIGHUP)
        running.wait_for("third: ")
        wait_for(lambda: [each.name for each in backend.jobs()] == ["third"], "another job")
        running.write(rules("nobody-has-this"))
        running.process.send_signal(signal.SIGHUP)
        running.wait_for("third is no longer followed: no rule matches its processes")
        assert "has ended" not in running.said()
        assert job.ccs() == [DEFAULT]
        assert running.process.poll() is None


def test_one_agent_at_a_time(backend: Backend, mark: str, tmp_path: Path) -> None:
    (tmp_path / "second").mkdir()
    with agent(tmp_path, rules(mark)) as running:
        second = Agent(tmp_path / "second", rules(mark))
        try:
            assert second.process.wait(PATIENCE_S) == BusyError.exit_code
        finally:
            second.process.kill()
        assert "An agent already runs on this host" in second.said()
        assert running.process.poll() is None


def test_a_killed_agent_leaves_what_detach_restores(
    backend: Backend, mark: str, tmp_path: Path
) -> None:
    with agent(tmp_path, rules(mark)) as running, training(mark) as job:
        job.ask("connect")
        running.wait_for("trained: ")
        wait_for(lambda: job.ccs() == ["mltcp"], "attached")
        running.stop(signal.SIGKILL)
        assert job.ccs() == ["mltcp"]
        assert {each.outcome for each in detach(job="trained")} == {"restored"}
        assert job.ccs() == [DEFAULT]
        with agent(tmp_path, rules(mark)) as next_one:  # the dead one's socket is in the way
            next_one.wait_for("trained: ")


def test_it_takes_in_again_what_an_unload_took(backend: Backend, mark: str, tmp_path: Path) -> None:
    if backend.name == "kmod":
        return  # it stays while sockets use it
    with agent(tmp_path, rules(mark)) as running, training(mark) as job:
        job.ask("connect")
        wait_for(lambda: job.ccs() == ["mltcp"], "attached")
        backend.unload(force=True)
        backend.load()
        running.wait_for("attaching them again")
        both_ends = [True, True]
        wait_for(lambda: [each.job_id > 0 for each in backend.flows()] == both_ends, "tags")
        running.stop()
        assert job.ccs() == [DEFAULT]


def test_unit_capabilities_suffice_for_other_users_namespaces(
    backend: Backend, tmp_path: Path
) -> None:
    unit = (Path(follow.__file__).parent / "mltcp-agent.service").read_text()
    (names,) = re.findall(r"^CapabilityBoundingSet=(.*)$", unit, re.MULTILINE)
    bounded = ",".join(f"+{name.removeprefix('CAP_').lower()}" for name in names.split())
    as_nobody = ("setpriv", "--reuid=65534", "--clear-groups")
    code = "import sys; from mltcp_tools.cli.main import main; sys.exit(main(sys.argv[1:]))"
    with namespace() as name, holder(2, through=("ip", "netns", "exec", name, *as_nobody)) as held:
        (tmp_path / "agent.yaml").write_text(f"rules: [{{job: a, pid: {held.pid}, kinds: all}}]")
        limited = ["setpriv", f"--bounding-set=-all,{bounded}", "--inh-caps=-all"]
        running = subprocess.Popen(
            [*limited, sys.executable, "-c", code, "agent", "--config", tmp_path / "agent.yaml"],
            env=os.environ | {"MLTCP_AGENT_SOCKET": str(tmp_path / "socket")},
        )
        try:
            wait_for(lambda: held.ccs() == ["mltcp"] * 2, "attached")
            running.terminate()
            assert running.wait(60) == 0
            assert held.ccs() == [FIRST_CC] * 2
        finally:
            running.kill()
            running.wait()


def test_systemd_is_told(backend: Backend, mark: str, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(30)
        with agent(tmp_path, rules(mark), NOTIFY_SOCKET=str(tmp_path / "notify")) as running:
            assert systemd.recv(100) == b"READY=1"
            running.process.send_signal(signal.SIGHUP)
            assert [systemd.recv(100) for _ in range(2)] == [b"RELOADING=1", b"READY=1"]
            running.stop()
            assert systemd.recv(100) == b"STOPPING=1"


def test_without_privilege_nothing_happens(backend: Backend, mark: str, tmp_path: Path) -> None:
    (tmp_path / "agent.yaml").write_text(rules(mark))
    code = "import sys; from mltcp_tools.cli.main import main; sys.exit(main(sys.argv[1:]))"
    bare = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", sys.executable, "-c", code]
    run = subprocess.run(
        [*bare, "agent", "--config", tmp_path / "agent.yaml"], capture_output=True, text=True
    )
    assert run.returncode == HostError.exit_code
    assert "CAP_SYS_PTRACE" in run.stderr
    assert run.stderr.count("\n") == 1


def test_the_agent_observes_where_its_rule_says_so(
    backend: Backend, mark: str, tmp_path: Path
) -> None:
    observing = rules(mark, more=", cc: observe")
    with agent(tmp_path, observing) as running, training(mark, "cc=reno") as job:
        job.ask("connect")
        wait_for(lambda: job.ccs() == ["mltcp_reno"], "observed")
        assert backend.jobs()[0].params.observed
        running.write(rules(mark))
        running.process.send_signal(signal.SIGHUP)
        wait_for(lambda: job.ccs() == ["mltcp"], "in earnest")
        assert not backend.jobs()[0].params.observed
        running.stop()
        assert job.ccs() == ["reno"]
