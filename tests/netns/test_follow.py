# SPDX-License-Identifier: BSD-2-Clause
"""Following processes on the real kernel: what they open is attached, what ends is let go."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from netns.backends_here import backend_fixture, fresh_and_loaded
from netns.connected import FIRST_CC, holder, with_pid
from netns.following import DEFAULT
from netns.own_programs import compile_here
from netns.trainings import Training, training
from support.waiting import wait_for

from mltcp_tools.base.errors import HostError
from mltcp_tools.cli.main import main
from mltcp_tools.kernel.backends.base import Backend, Job
from mltcp_tools.kernel.host import cgroups
from mltcp_tools.kernel.native.bpf_object import BpfObject
from mltcp_tools.live.agent import follow
from mltcp_tools.live.agent.attaching import forget_closed
from mltcp_tools.live.agent.follow import Follower
from mltcp_tools.live.agent.health import OVERRIDDEN
from mltcp_tools.live.agent.rules import ALL, Rule
from mltcp_tools.live.agent.wakeups import Tracepoint
from mltcp_tools.live.attach.selection import Target
from mltcp_tools.live.attach.state import StateFiles
from mltcp_tools.live.observe.follower_state import read_follower_states, read_overridden
from mltcp_tools.live.sources.messages import Mailbox

backend = backend_fixture(fresh_and_loaded)


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


@pytest.mark.parametrize("method", METHODS)
def test_connections_are_attached_as_they_come(backend: Backend, mark: str, method: str) -> None:
    follow_to_the_end(backend, mark, method)


def follow_to_the_end(backend: Backend, mark: str, method: str) -> None:
    """Connections of processes that come, open more and end, with what notices them."""
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


def test_a_new_job_is_shown_at_once_however_costly_looks_are(
    backend: Backend, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "pause_s", lambda *_: 1e6)
    rule = Rule("trained", Target(patterns=(mark,)), kinds=(ALL,))
    with Follower([rule], backend, lambda _: None, "tracepoint") as follower:
        follower.step()
        with training(mark) as new:
            new.ask("connect")
            wait_for(
                lambda: (
                    follower.step()
                    or [each.name for each in read_follower_states().values()] == ["trained"]
                ),
                "the job is shown",
            )


@pytest.mark.parametrize("program", [[], ["sleep", "60"]])
def test_leaving_child_does_not_take_its_parents_connections(
    backend: Backend, mark: str, program: list[str]
) -> None:
    """Such as a data loader's worker, which ends, or a compiler that a process starts."""
    said: list[str] = []
    rule = Rule("trained", Target(patterns=(mark,)), kinds=(ALL,))
    with training(mark) as job, Follower([rule], backend, said.append) as follower:
        job.ask("connect")
        wait_for(lambda: follower.step() or job.ccs() == ["mltcp"], "attached")
        child = job.ask("fork", *program)
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
            wait_for(lambda: follower.step() or first.ccs() == ["mltcp"] * 2, "attached")
        second = with_pid(first.pid)
        stack.callback(second.end)
        wait_for(lambda: follower.step() or not follower.jobs(), "the job ends")
        follower.replace_rules([rule])
        follower.step()
        assert second.ccs() == [FIRST_CC] * 2


def test_a_flood_does_not_keep_it_from_its_work(
    backend: Backend, mark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mltcp_tools.live.agent.follow._HEARD_MOST", 100)
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


def test_renamed_process_keeps_its_job_and_its_refusal(backend: Backend, mark: str) -> None:
    """As with setproctitle, which overwrites the command line and the environment."""
    said: list[str] = []
    rules = [
        Rule("declining", Target(patterns=(f"{mark}-off|IDLE-{mark}",)), kinds=(ALL,)),
        Rule("env-{env:MLTCP_JOB}", Target(patterns=(mark,)), kinds=(ALL,)),
    ]
    with (
        training(f"{mark}-off", MLTCP_ATTACH="off") as off,
        training(mark, MLTCP_JOB="own") as job,
        Follower(rules, backend, said.append) as follower,
    ):
        job.ask("connect")
        wait_for(lambda: follower.step() or job.ccs() == ["mltcp"], "attached")
        for title in (f"ray::IDLE-{mark}", f"ray::train-{mark}", "VLLM::Worker_TP0"):
            job.ask("rename", title)
            off.ask("rename", title)
            job.ask("connect")
            off.ask("connect")
            wait_for(lambda: follower.step() or set(job.ccs()) == {"mltcp"}, "still attached")
        assert follower.jobs() == ["env-own"]
        assert set(off.ccs()) == {DEFAULT}
    assert not any("restored" in each or "overwritten" in each for each in said)


def test_process_renamed_before_the_agent_is_left_alone(backend: Backend, mark: str) -> None:
    said: list[str] = []
    rule = Rule("trained", Target(patterns=(mark,)), kinds=(ALL,))
    with training(mark, MLTCP_ATTACH="off") as off, training(mark) as job:
        off.ask("rename", f"Worker-{mark}")
        off.ask("connect")
        job.ask("connect")
        with Follower([rule], backend, said.append) as follower:
            wait_for(lambda: follower.step() or job.ccs() == ["mltcp"], "attached")
            for _ in range(3):
                follower.replace_rules([rule])
                follower.step()
            assert off.ccs() == [DEFAULT]
    (sentence,) = (each for each in said if "overwritten its environment" in each)
    assert f"Process {off.process.pid} (" in sentence


@pytest.fixture
def node() -> Iterator[Path]:
    """A cgroup for those of jobs."""
    path = cgroups.root() / f"mltcp-test-{uuid.uuid4().hex[:8]}"
    path.mkdir()
    yield path
    for each in sorted(path.glob("**/"), reverse=True):
        wait_for(lambda each=each: not (each / "cgroup.procs").read_text(), "it is empty")
        each.rmdir()


def within(path: Path, uid: int = 0) -> tuple[str, ...]:
    """Starts a command in the cgroup, as that user."""
    path.mkdir(parents=True, exist_ok=True)
    enter = f'echo $$ >{path}/cgroup.procs; exec setpriv --reuid {uid} --clear-groups "$@"'
    return ("sh", "-c", enter, "sh")


SLURM = r"slurm-{cgroup:job_(\d+)}"
USER = 65534


@pytest.mark.parametrize("manager_first", [True, False])
def test_slurm_job_is_its_ranks_users(
    backend: Backend, mark: str, node: Path, manager_first: bool
) -> None:
    """slurmstepd runs as root in the job's cgroup, and may be seen before any rank."""
    said: list[str] = []
    rule = Rule(SLURM, Target(cgroups=(f"/{node.name}",)), kinds=(ALL,))
    step = node / "slurmstepd.scope/job_56/step_0"
    with ExitStack() as stack:
        follower = stack.enter_context(Follower([rule], backend, said.append, linger_s=60))

        def start(place: Path, uid: int = 0) -> Training:
            found = stack.enter_context(training(mark, through=within(place, uid)))
            found.ask("connect")
            follower.replace_rules([rule])
            follower.step()
            return found

        if manager_first:
            manager = start(step / "slurm")
            rank = start(step / "user/task_0", USER)
        else:
            rank = start(step / "user/task_0", USER)
            manager = start(step / "slurm")
        more = start(step / "user/task_1", USER)
        for each in (rank, more):
            wait_for(lambda each=each: follower.step() or each.ccs() == ["mltcp"], "attached")
        stranger = start(step / "user/task_2", USER - 1)
        follower.step()
        assert follower.jobs() == ["slurm-56"]
        assert manager.ccs() == stranger.ccs() == [DEFAULT]
        assert [each.uid for each in read_follower_states().values()] == [USER]
        for each in (rank, more):
            each.end()
        follower.replace_rules([rule])
        follower.step()
        assert manager.ccs() == [DEFAULT]
    assert len([each for each in said if "calls itself" in each]) == 1


def test_same_job_number_in_two_containers_is_not_one_job(
    backend: Backend, mark: str, node: Path
) -> None:
    said: list[str] = []
    rule = Rule(SLURM, Target(cgroups=(f"/{node.name}",)), kinds=(ALL,))
    pods = [f"pod0a1b2c3d_4e5f_6071_8293_00000000000{number}.slice" for number in (1, 2)]
    with (
        training(mark, through=within(node / pods[0] / "job_7/step_0")) as one,
        Follower([rule], backend, said.append) as follower,
    ):
        one.ask("connect")
        wait_for(lambda: follower.step() or one.ccs() == ["mltcp"], "attached")
        for uid in (0, USER):
            with training(mark, through=within(node / pods[1] / "job_7/step_0", uid)) as two:
                two.ask("connect")
                follower.replace_rules([rule])
                follower.step()
                assert (one.ccs(), two.ccs()) == (["mltcp"], [DEFAULT])
        assert f"a job of /{node.name}/{pods[0]}/job_7, and this one is of" in "".join(said)
        told_apart = replace(rule, job="{pod}-" + SLURM)
        with training(mark, through=within(node / pods[1] / "job_7/step_1")) as two:
            two.ask("connect")
            follower.replace_rules([told_apart])
            both = "both are attached"
            wait_for(lambda: follower.step() or one.ccs() == two.ccs() == ["mltcp"], both)
            assert len(set(follower.jobs())) == 2


def test_process_that_leaves_its_jobs_cgroup_is_given_back(
    backend: Backend, mark: str, node: Path
) -> None:
    said: list[str] = []
    rule = Rule(SLURM, Target(patterns=(mark,)), kinds=(ALL,))
    with (
        training(mark, through=within(node / "job_7")) as orphan,
        training(mark, through=within(node / "job_8")) as other,
        Follower([rule], backend, said.append) as follower,
    ):
        orphan.ask("connect")
        other.ask("connect")
        both = "both are attached"
        wait_for(lambda: follower.step() or orphan.ccs() == other.ccs() == ["mltcp"], both)
        for place in ("elsewhere", "job_9"):
            (node / place).mkdir()
            (node / place / "cgroup.procs").write_text(str(orphan.process.pid))
            if place == "elsewhere":
                (node / "job_7").rmdir()
                wait_for(lambda: follower.step() or orphan.ccs() == [DEFAULT], "given back")
                wait_for(lambda: follower.step() or follower.jobs() == ["slurm-8"], "it ends")
            else:
                wait_for(lambda: follower.step() or "slurm-9" in follower.jobs(), "the new job")
                wait_for(lambda: follower.step() or orphan.ccs() == ["mltcp"], "attached")
        assert other.ccs() == ["mltcp"]
    (sentence,) = (each for each in said if "has left" in each)
    assert f"{orphan.process.pid} has left /{node.name}/job_7" in sentence


@pytest.mark.bpf
def test_program_that_sets_congestion_control_is_named(
    backend: Backend, mark: str, node: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said: list[str] = []
    rule = Rule("trained", Target(patterns=(mark,)), kinds=(ALL,))
    place = node / "tuned/job"
    with (
        training(mark, through=within(place)) as job,
        BpfObject(compile_here("overriding", tmp_path), None) as program,
        Follower([rule], backend, said.append) as follower,
    ):
        end = link_to(program, place.parent)
        job.ask("connect")
        rounds = 0
        while not read_overridden():
            job.ask("train 3 0.01 1000")
            follower.replace_rules([rule])
            follower.step()
            rounds += 1
            assert rounds < 2000, said
        (sentence,) = read_overridden()
        assert f"another_tuner of /{node.name}/tuned" in sentence
        assert main(["status", "--check"]) == OVERRIDDEN
        assert sentence in capsys.readouterr().out
        for _ in range(50):
            job.ask("train 3 0.01 1000")
            follower.replace_rules([rule])
            follower.step()
        assert sum("attaching them again" in each for each in said) == 1
        end()
        wait_for(lambda: follower.step() or job.ccs() == ["mltcp"], "attached once it is gone")
    assert read_overridden() == []


def link_to(program: BpfObject, cgroup: Path) -> Callable[[], None]:
    folder = os.open(cgroup, os.O_RDONLY)
    try:
        return program.link_to_cgroup("another_tuner", folder)
    finally:
        os.close(folder)
