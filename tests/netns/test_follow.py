"""Following processes on the real kernel: what they open is attached, what ends is let go."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from netns.backends_here import PARAMETERS, fresh_and_loaded
from netns.connected import FIRST_CC, holder, namespace, with_pid
from netns.trainings import Agent, agent, training, wait_for

from mltcp_tools import analysis
from mltcp_tools.agent import follow
from mltcp_tools.agent.attaching import forget_closed
from mltcp_tools.agent.follow import Follower
from mltcp_tools.agent.rules import ALL, Rule
from mltcp_tools.agent.wakeups import Tracepoint
from mltcp_tools.attach.processes import Target
from mltcp_tools.attach.restore import detach
from mltcp_tools.attach.state import StateFiles
from mltcp_tools.backends.base import Backend, Job
from mltcp_tools.cli.main import main
from mltcp_tools.errors import BusyError, HostError
from mltcp_tools.sources.messages import Mailbox

DEFAULT = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
BURST = 200_000


@pytest.fixture(params=PARAMETERS)
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    with fresh_and_loaded(request.param) as found:
        yield found


@pytest.fixture
def mark() -> str:
    """What tells this test's processes from all others."""
    return f"mark-{uuid.uuid4().hex}"


def tracepoint_missing() -> str:
    try:
        Tracepoint().close()
    except HostError as error:
        return str(error)
    return ""


METHODS = [
    "polling",
    pytest.param(
        "tracepoint",
        marks=pytest.mark.skipif(bool(why := tracepoint_missing()), reason=f"no tracepoint: {why}"),
    ),
]


def rules(mark: str, job: str | None = "trained", more: str = "", **top: str) -> str:
    """A configuration with one rule for the processes with this mark."""
    named = "" if job is None else f"job: {job}, "
    head = "".join(f"{name}: {value}\n" for name, value in top.items())
    return f"{head}rules:\n  - {{{named}command: {mark}, kinds: all{more}}}\n"


@pytest.mark.parametrize("method", METHODS)
def test_connections_are_attached_as_they_come(backend: Backend, mark: str, method: str) -> None:
    said: list[str] = []
    rule = Rule("trained", Target(patterns=(mark,)), kinds=(ALL,))
    with training(mark) as old, Follower([rule], backend, said.append, method) as follower:
        old.ask("connect")
        follower.step()
        wait_for(lambda: follower.step() or old.ccs() == ["mltcp"], "the one that was there")
        old.ask("connect")
        wait_for(lambda: follower.step() or old.ccs() == ["mltcp"] * 2, "a new one")
        with training(mark) as new:
            new.ask("connect")
            wait_for(lambda: follower.step() or new.ccs() == ["mltcp"], "one of a new process")
        (job,) = backend.jobs()
        wait_for(lambda: follower.step() or len(backend.flows()) == 4, "both ends of both")
        assert {flow.job_id for flow in backend.flows()} == {job.id}
        wait_for(
            lambda: (
                follower.step()
                or {each.pid for each in StateFiles().read()[0].sockets} == {old.process.pid}
            ),
            "the ended process is let go",
        )
        old.end()
        wait_for(lambda: follower.step() or not follower.jobs(), "the job ends")
    assert f"noticed by {method} (" in said[0]
    assert any(line.startswith("trained has ended") for line in said)
    assert backend.jobs() == []
    assert StateFiles().read() == []


@pytest.mark.parametrize("program", [[], ["sleep", "60"]])
def test_a_child_that_leaves_does_not_take_its_parents_connections(
    backend: Backend, mark: str, program: list[str]
) -> None:
    """Such as a data loader's worker, which ends, or a compiler that a process starts."""
    said: list[str] = []
    rule = Rule("trained", Target(patterns=(mark,)), kinds=(ALL,))
    with training(mark) as job, Follower([rule], backend, said.append) as follower:
        job.ask("connect")
        wait_for(lambda: follower.step() or job.ccs() == ["mltcp"], "attached")
        child = int(job.ask(f"fork {' '.join(program)}"))
        wait_for(
            lambda: follower.step() or any(f"process {child} attached" in each for each in said),
            "the child is watched",
        )
        os.kill(child, signal.SIGUSR1 if program else signal.SIGKILL)
        wait_for(
            lambda: follower.step() or child not in {each.process.pid for each in follower.watched},
            "the child is let go",
        )
        assert job.ccs() == ["mltcp"]
        assert {each.pid for each in StateFiles().read()[0].sockets} == {job.process.pid}
        if program:
            os.kill(child, signal.SIGKILL)
        job.end()
        wait_for(lambda: follower.step() or not follower.jobs(), "the job ends")


def test_an_id_that_another_job_takes_first(backend: Backend, mark: str) -> None:
    rule = Rule("trained", Target(patterns=(mark,)), kinds=(ALL,))
    with training(mark) as job, Follower([rule], backend, lambda _: None) as follower:
        wait_for(lambda: follower.step() or follower.jobs() == ["trained"], "followed")
        backend.set_job(Job(1, "quicker"))
        job.ask("connect")
        wait_for(lambda: follower.step() or job.ccs() == ["mltcp"], "attached")
        assert {each.id: each.name for each in backend.jobs()} == {1: "quicker", 2: "trained"}
        wait_for(lambda: follower.step() or len(backend.flows()) == 2, "both ends")
        assert {each.job_id for each in backend.flows()} == {2}


def test_a_pid_of_the_rule_that_is_another_process_by_now(backend: Backend) -> None:
    with ExitStack() as stack:
        with holder(2) as first:
            rule = Rule("trained", Target(pids=(first.pid,)), kinds=(ALL,))
            follower = stack.enter_context(Follower([rule], backend, lambda _: None))
            wait_for(
                lambda: follower.step() or first.congestion_controls() == ["mltcp"] * 2, "attached"
            )
        second = with_pid(first.pid)
        stack.callback(second.end)
        wait_for(lambda: follower.step() or not follower.jobs(), "the job ends")
        follower.replace_rules([rule])
        follower.step()
        assert second.congestion_controls() == [FIRST_CC] * 2


def test_a_flood_does_not_keep_it_from_its_work(
    backend: Backend, mark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mltcp_tools.agent.follow._HEARD_MOST", 100)
    flood = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        "s.connect(sys.argv[1])\nwhile True: s.send(bytes(128))"
    )
    said: list[str] = []
    rule = Rule("trained", Target(patterns=(mark,)), kinds=(ALL,))
    with (
        training(mark) as job,
        Mailbox(tmp_path / "agent.sock") as box,
        Follower([rule], backend, said.append, mailbox=box) as follower,
        subprocess.Popen([sys.executable, "-c", flood, tmp_path / "agent.sock"]) as flooding,
    ):
        try:
            wait_for(
                lambda: follower.step() or any("too many arrive" in each for each in said), "said"
            )
            job.ask("connect")
            wait_for(lambda: follower.step() or job.ccs() == ["mltcp"], "attached")
            heard = box.received
            wait_for(lambda: follower.step() or box.received > heard + 100, "heard again")
        finally:
            flooding.kill()


def test_what_was_attached_by_somebody_else_stays_detached(backend: Backend, mark: str) -> None:
    rule = Rule("trained", Target(patterns=(mark,)), kinds=(ALL,))
    with training(mark) as job, Follower([rule], backend, lambda _: None) as follower:
        job.ask("connect")
        wait_for(lambda: follower.step() or job.ccs() == ["mltcp"], "attached")
        detach(job="trained")
        for _ in range(3):
            follower.step()
        assert job.ccs() == [DEFAULT]
        assert backend.jobs() == []
        job.ask("connect")
        wait_for(lambda: follower.step() or job.ccs() == [DEFAULT, "mltcp"], "the next one")


def test_what_is_detached_by_hand_is_told_survives_sighup_and_has_a_way_back(
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
        job.ask("connect")
        wait_for(lambda: job.ccs()[1] == "mltcp", "the next one, by the new rules")
        assert job.ccs() == [DEFAULT, "mltcp"]
        back = ["attach", mark, "--job", "trained", "--all-sockets"]
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
        taking = ["attach", mark, "--job", "gamma", "--all-sockets"]
        assert main(taking) == BusyError.exit_code
        assert "trained -> gamma" in capsys.readouterr().err
        assert main([*taking, "--move"]) == 0
        assert "job trained -> gamma, tagged" in capsys.readouterr().out
        running.wait_for("moved by hand to job gamma, job trained -> gamma")
        running.stop()
        assert job.ccs() == ["mltcp"]  # the agent's no more
        assert {each.now for each in detach(job="gamma")} == {DEFAULT}
        assert job.ccs() == [DEFAULT]


def test_a_job_whose_rule_goes_has_not_ended(backend: Backend, mark: str, tmp_path: Path) -> None:
    with agent(tmp_path, rules(mark)) as running, training(mark) as job:
        job.ask("connect")
        wait_for(lambda: job.ccs() == ["mltcp"], "attached")
        running.write(rules("none-is-like-that"))
        running.process.send_signal(signal.SIGHUP)
        running.wait_for("trained is no longer followed: no rule matches its processes")
        assert job.ccs() == [DEFAULT]
        assert "has ended" not in running.said()


def test_records_of_closed_connections_are_forgotten(backend: Backend, mark: str) -> None:
    rule = Rule("trained", Target(patterns=(mark,)), kinds=(ALL,))
    with training(mark) as job, Follower([rule], backend, lambda _: None) as follower:
        job.ask("connect")
        job.ask("connect")
        wait_for(lambda: follower.step() or job.ccs() == ["mltcp"] * 2, "attached")
        wait_for(
            lambda: follower.step() or len(StateFiles().read()[0].sockets) == 4, "all recorded"
        )
        job.ask("close")
        wait_for(lambda: follower.step() or len(backend.flows()) == 2, "closed")
        forget_closed()
        assert len(StateFiles().read()[0].sockets) == 2
        job.ask("close")
        wait_for(lambda: follower.step() or not backend.flows(), "closed")
        forget_closed()
        assert StateFiles().read()[0].sockets == ()


def test_what_flows_learn_is_shown(
    backend: Backend, mark: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said: list[str] = []
    rule = Rule("trained", Target(patterns=(mark,)), kinds=(ALL,))
    with training(mark) as job, Follower([rule], backend, said.append) as follower:
        job.ask("connect")
        wait_for(lambda: follower.step() or len(backend.flows()) == 2, "attached")
        job.tell(f"train 60 0.1 {BURST}")
        views: list[dict[str, Any]] = []

        def known() -> bool:
            follower.step()
            views[:] = json.loads(shown(capsys, "jobs", "--json"))
            return bool(views and views[0]["metadata"])

        wait_for(known, "a period is shown")
        (listed,) = views
        assert listed["metadata"]["source"] == "learned"
        period_s, gap_s = listed["metadata"]["period_s"], listed["metadata"]["gap_s"]
        assert period_s > 0.095  # what the job sleeps; a busy host adds to that
        assert 0.025 < gap_s < period_s
        assert listed["metadata"]["bytes_per_iteration"] == pytest.approx(BURST, rel=0.02)
        flows = json.loads(shown(capsys, "flows", "--json"))
        sizes = [each["learned_bytes"] for each in flows]
        assert max(sizes) == pytest.approx(BURST, rel=0.02)
        assert "learned" in shown(capsys, "watch", "--once", "--wait", "0.1s")
        # Nothing is told to those who know it already.
        params = backend.jobs()[0].params
        assert (params.total_bytes, params.gap_s) == (0, 0)
    assert any("per burst of a flow" in each and "learned: period" in each for each in said)


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What `mltcp` prints."""
    capsys.readouterr()
    assert main(arguments) == 0
    return capsys.readouterr().out


# The agent


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
            # Long enough for a slow host to show the job while it is there.
            job.tell(f"train 200 0.05 {BURST}")
            running.wait_for("own-name: 2 connections")
            running.wait_for("hooks: period")
            wait_for(
                lambda: " hooks " in shown(capsys, "watch", "--once", "--wait", "0.1s"), "shown"
            )
            (view,) = json.loads(shown(capsys, "watch", "--once", "--json", "--wait", "0.1s"))
            assert view["name"] == "own-name"
            assert 0.045 < view["metadata"]["period_s"] < float(job.answer())
            stranger.answer()
            assert stranger.ccs() == [DEFAULT]
            running.stop()
            assert running.process.returncode == 0
            assert job.ccs() == [DEFAULT]
    assert "own-name: 2 connections restored" in running.said()
    assert not running.socket.exists()


@pytest.mark.parametrize("on_stop", ["detach", "keep"])
def test_on_sigterm_it_detaches_or_keeps(
    backend: Backend, mark: str, tmp_path: Path, on_stop: str
) -> None:
    with agent(tmp_path, rules(mark, on_stop=on_stop)) as running, training(mark) as job:
        job.ask("connect")
        running.wait_for("trained: ")
        wait_for(lambda: job.ccs() == ["mltcp"], "attached")
        running.stop(signal.SIGTERM)
        assert running.process.returncode == 0
        assert job.ccs() == [DEFAULT if on_stop == "detach" else "mltcp"]
        if on_stop == "keep":
            with agent(tmp_path, rules(mark, on_stop="detach")) as next_one:  # takes it over
                next_one.wait_for("trained: ")
                next_one.stop()
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
        wait_for(lambda: job.ccs() == [DEFAULT], "detached, as no rule fits it any more")
        assert running.process.poll() is None


def test_one_agent_at_a_time(backend: Backend, mark: str, tmp_path: Path) -> None:
    (tmp_path / "second").mkdir()
    with agent(tmp_path, rules(mark)) as running:
        second = Agent(tmp_path / "second", rules(mark))
        assert second.process.wait(30) == BusyError.exit_code
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


def test_it_survives_an_unload(backend: Backend, mark: str, tmp_path: Path) -> None:
    with agent(tmp_path, rules(mark)) as running, training(mark) as job:
        job.ask("connect")
        wait_for(lambda: job.ccs() == ["mltcp"], "attached")
        wait_for(lambda: unloaded(backend), "unloaded")
        running.wait_for("no longer seen") if backend.name == "bpf" else None
        job.ask("connect")
        assert running.process.poll() is None
        running.stop()
        assert job.ccs() == [DEFAULT] * 2


def unloaded(backend: Backend) -> bool:
    try:
        backend.unload(force=True)
    except BusyError:  # a kernel module stays while a socket runs it
        detach()
        return False
    return True


def test_the_units_capabilities_are_enough_for_other_users_in_other_namespaces(
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
            wait_for(lambda: held.congestion_controls() == ["mltcp"] * 2, "attached")
            running.terminate()
            assert running.wait(60) == 0
            assert held.congestion_controls() == [FIRST_CC] * 2
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


# Watching and recording


def test_a_recording_is_a_run_folder_that_report_reads(
    backend: Backend, mark: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        agent(tmp_path, rules(mark, more=", total: 200kB, gap: 50ms")) as running,
        training(mark) as job,
    ):
        job.ask("connect")
        running.wait_for("trained: ")
        wait_for(lambda: len(backend.flows()) == 2, "attached")
        job.tell(f"train 60 0.1 {BURST}")
        assert main(["record", "-o", str(tmp_path / "run"), "--iterations", "20"]) == 0
        assert "of trained; see them with: mltcp report" in capsys.readouterr().err
        job.answer()
    run = analysis.load_run(tmp_path / "run")
    assert len(run.iterations) >= 20
    assert set(run.iterations["arm"]) == {"mltcp"}
    assert set(run.iterations["job"]) == {"trained"}
    assert (run.iterations["bytes"] == BURST).all()
    assert (run.iterations["compute_s"] > 0.05).all()
    assert len(run.flow_events) >= 20
    assert run.environment["outcome"] == "finished"
    assert run.problems == []
    assert "recorded: Attached jobs" in shown(capsys, "report", str(tmp_path / "run"))


def test_watching_and_recording_without_an_agent(
    backend: Backend, mark: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with training(mark) as job:
        job.ask("connect")
        attached = ["attach", mark, "--job", "alone", "--all-sockets", "--gap", "50ms"]
        assert main([*attached, "--total", "200kB"]) == 0
        job.tell(f"train 1000 0.1 {BURST}")  # more than are watched, however slow the machine
        assert main(["record", "-o", str(tmp_path / "run"), "--duration", "2s"]) == 0
        assert "iterations of alone" in capsys.readouterr().err
        views: list[dict[str, Any]] = []

        def watched() -> bool:
            views[:] = json.loads(shown(capsys, "watch", "--once", "--json", "--wait", "1.5s"))
            return views[0]["iterations"] > 5

        wait_for(watched, "some iterations while it was watched")
        (view,) = views
        assert (view["name"], view["flows"], view["metadata"]) == ("alone", 2, None)
        assert view["iteration_s"] > 0.095
        detach(job="alone")


def test_flows_that_nobody_attached_are_jobs_of_their_own(
    backend: Backend, mark: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "sure of its iterations yet" in shown(capsys, "watch", "--once", "--wait", "0.1s")
    with training(mark, "cc=mltcp") as job:
        _, port = job.ask("connect").split()
        job.tell(f"train 1000 0.1 {BURST}")
        wait_for(lambda: json.loads(shown(capsys, "jobs", "--json")), "a flow that is sure")
        pid = job.process.pid
        (listed,) = json.loads(shown(capsys, "jobs", "--json"))
        name = listed["name"]
        assert name.startswith(f"{pid} (")
        assert name.endswith(") to 127.0.0.1")
        assert listed["flows"] == 1
        (line,) = [each for each in shown(capsys, "flows").splitlines() if name[:10] in each]
        assert {str(pid), "-", port, "mltcp"} <= set(line.split())
        by_port = {
            each["local_port"]: each["pid"] for each in json.loads(shown(capsys, "flows", "--json"))
        }
        assert by_port[int(port)] == pid
        assert main(["record", "-o", str(tmp_path / "run"), "--duration", "2s"]) == 0
        assert f"iterations of {name}" in capsys.readouterr().err
        (view,) = json.loads(shown(capsys, "watch", "--once", "--json", "--wait", "2s"))
        assert (view["name"], view["flows"]) == (name, 1)
        assert view["iterations"] > 5
        assert backend.jobs() == []
    run = analysis.load_run(tmp_path / "run")
    assert set(run.iterations["job"]) == {name}
    assert (run.iterations["bytes"] == BURST).all()


def test_a_process_per_iteration_is_one_job(backend: Backend, mark: str, tmp_path: Path) -> None:
    with agent(tmp_path, rules(mark)) as running:
        for _ in range(8):
            with training(mark) as job:
                job.ask("connect")
                wait_for(lambda job=job: job.ccs() == ["mltcp"], "attached")
        running.wait_for("it keeps opening connections")
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
        looking = ["attach", mark, "--job", "seen", "--all-sockets", "--observe"]
        assert main([*looking, "--gap", "50ms", "--total", "200kB"]) == 0
        assert job.ccs() == [f"mltcp_{base}"]
        assert backend.jobs()[0].params.mechanisms == ()
        job.tell(f"train 60 0.1 {BURST}")
        assert main(["record", "-o", str(tmp_path / "before"), "--iterations", "10"]) == 0
        flows = [flow for flow in backend.flows() if flow.sent_bytes]
        assert {(flow.gain, flow.yields) for flow in flows} == {(1.0, 0)}
        job.answer()
        assert main(["attach", mark, "--job", "seen", "--all-sockets"]) == 0
        assert job.ccs() == ["mltcp"]
        assert backend.jobs()[0].params.mechanisms is None
        job.tell(f"train 60 0.1 {BURST}")
        assert main(["record", "-o", str(tmp_path / "after"), "--iterations", "10"]) == 0
        job.answer()
        assert {each.now for each in detach()} == {base}
        assert job.ccs() == [base]
    capsys.readouterr()
    assert main(["report", str(tmp_path / "before"), str(tmp_path / "after")]) == 0
    shown = capsys.readouterr().out
    assert f"{base} → mltcp" in shown
    assert "alone is missing" not in shown


def test_the_agent_observes_where_its_rule_says_so(
    backend: Backend, mark: str, tmp_path: Path
) -> None:
    observing = rules(mark, more=", observe: true")
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


@pytest.mark.skipif("bbr" not in AVAILABLE, reason="this kernel has no bbr")
def test_what_can_not_be_observed_is_said(
    backend: Backend, mark: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with training(mark, "cc=bbr") as job:
        job.ask("connect")
        assert main(["attach", mark, "--job", "seen", "--all-sockets", "--observe"]) == 1
        assert "MLTCP has no variant of bbr to observe it with" in capsys.readouterr().out
        assert job.ccs() == ["bbr"]


def test_mistakes_in_recording(
    backend: Backend, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["record", "-o", str(tmp_path / "run")]) == 2
    assert "No job is attached" in capsys.readouterr().err
    assert main(["record", "-o", str(tmp_path / "run"), "--job", "x"]) == 2
    assert "There is no job 'x'; there are: none." in capsys.readouterr().err
    (tmp_path / "file").touch()
    assert main(["record", "-o", str(tmp_path)]) == 2
    assert "isn't an empty folder" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
