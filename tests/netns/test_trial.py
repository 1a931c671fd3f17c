# SPDX-License-Identifier: BSD-2-Clause
"""Trials on live jobs: what they switch, what ends them, and that everything is put back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from netns.backends_here import backend_fixture, fresh_and_loaded
from netns.connections import bottleneck
from netns.following import BURST, rules, shown
from netns.trainings import Training, agent, pause, training
from support.waiting import PATIENCE_S, wait_for

from mltcp_tools.cli.main import main
from mltcp_tools.kernel.backends.base import Backend
from mltcp_tools.lab.testbed.network import RECEIVER_ADDRESS
from mltcp_tools.live.attach.selection import Target, select
from mltcp_tools.live.attach.sockets import sockets_of
from mltcp_tools.live.attach.state import StateFiles
from mltcp_tools.live.observe.meter import Meter
from mltcp_tools.live.trial.rollback import TRIAL_DIR

backend = backend_fixture(fresh_and_loaded)

QUICK = ("--phase-time", "3s", "--detection-time", "60s", "--abort-if-slower", "300%")
COMPUTE_S = 0.03
"""So that forty iterations, the fewest of a period, take half of it."""

ENDLESS = 100_000


@contextmanager
def slow_link(name: str) -> Iterator[tuple[str, ...]]:
    """A network namespace whose loopback is a bottleneck; what runs a command there."""
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        link = f"-n {name} link set lo mtu 1500 up"
        subprocess.run(["ip", *link.split()], check=True)
        shaping = f"-n {name} qdisc add dev lo root tbf rate 50mbit burst 20k limit 30k"
        subprocess.run(["tc", *shaping.split()], check=True)
        yield ("ip", "netns", "exec", name)
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)


@contextmanager
def job(mark: str, compute_s: float = COMPUTE_S, through: Sequence[str] = ()) -> Iterator[Training]:
    """One that trains over two connections from now on, under reno."""
    with training(mark, "cc=reno", through=through) as started:
        started.ask("connect")
        started.ask("connect")
        started.tell(f"train {ENDLESS} {compute_s} {BURST}")
        yield started


@contextmanager
def trial(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "mltcp_tools.cli.main", "trial", *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def runs(backend: Backend) -> set[str]:
    return {flow.congestion_control for flow in backend.flows()}


def nothing_left(backend: Backend) -> bool:
    return not (runs(backend) or StateFiles().read() or list(TRIAL_DIR.glob("*")))


def result(process: subprocess.Popen[str]) -> tuple[int, dict[str, Any], str]:
    out, err = process.communicate(timeout=400)
    return process.returncode, json.loads(out), err


def test_what_is_sent_again_is_counted_apart(mark: str) -> None:
    # A router drops it: what the sender's own host drops may count as unsent.
    where = f"address={RECEIVER_ADDRESS}"
    enter = ("ip", "netns", "exec")
    with (
        bottleneck(50_000_000) as network,
        training("receiver", where, through=(*enter, network.receiver)) as receiver,
        training(
            *(mark, where, "cc=reno", f"peer={receiver.port}"),
            through=(*enter, network.senders[0]),
        ) as own,
    ):
        own.ask("connect")
        own.ask("train 1 0 1000000")
        with Meter() as meter:
            found = meter.read(sockets_of(select(Target(patterns=(mark,))))[0]).values()
    sender = max(found, key=lambda each: each.acknowledged)
    assert sender.acknowledged in (1_000_000, 1_000_001)  # with the SYN
    assert sender.retransmits
    assert sender.bytes_again > 500


def test_a_trial_alternates_and_reports_what_it_found(backend: Backend, mark: str) -> None:
    with job(mark), trial("--job", f"a={mark}", *QUICK, "--json") as process:
        wait_for(lambda: runs(backend) == {"mltcp"}, "a period with mltcp", beside=process)
        wait_for(lambda: not runs(backend), "a period without", beside=process)
        code, found, err = result(process)
        assert nothing_left(backend)
    # What else runs on this host may make too many rounds discarded.
    assert code == (1 if found["ended"] else 0), err
    valid = [each for each in found["rounds"] if not each["discarded"]]
    assert len(valid) == 8 or found["ended"]
    assert valid
    (row,) = found["jobs"]
    assert row["job"] == "a"
    # What the connections showed is what the program did: it computes, then sends.
    assert row["base"]["mean_s"] > COMPUTE_S
    assert found["verdict"] in ("none", "faster", "slower", "short")
    assert "finds a difference of" in err


def test_an_attached_job_is_attached_as_before_in_the_end(backend: Backend, mark: str) -> None:
    with job(mark):
        attached = ["attach", mark, "--job", "a", "--kind", "all", "--slope", "1.5"]
        assert main(attached) == 0
        before = StateFiles().read()
        with trial("--job", "a", *QUICK) as process:
            wait_for(lambda: not runs(backend), "a period without", beside=process)
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=PATIENCE_S)
            assert process.returncode
        assert runs(backend) == {"mltcp"}
        (after,) = StateFiles().read()
        assert after.job == before[0].job
        assert {each.old for each in after.sockets} == {"reno"}
        assert main(["detach", "a"]) == 0


def test_what_kills_a_trial_puts_everything_back(backend: Backend, mark: str) -> None:
    with job(mark), trial("--job", f"a={mark}", *QUICK) as process:
        wait_for(lambda: runs(backend) == {"mltcp"}, "a period with mltcp", beside=process)
        process.kill()
        process.wait()
        wait_for(lambda: nothing_left(backend), "everything to be put back")


def test_next_trial_restores_one_whose_guardian_was_killed(backend: Backend, mark: str) -> None:
    with job(mark), trial("--job", f"a={mark}", *QUICK) as process:
        wait_for(lambda: runs(backend) == {"mltcp"}, "a period with mltcp", beside=process)
        for pid, _ in json.loads((TRIAL_DIR / "trial.json").read_text())["owners"]:
            os.kill(pid, signal.SIGKILL)
        process.wait()
        assert runs(backend) == {"mltcp"}
        assert main(["trial", "--job", "nobody"]) == 2
        assert nothing_left(backend)


def test_a_trial_that_is_stopped_loses_its_lease(backend: Backend, mark: str) -> None:
    with job(mark), trial("--job", f"a={mark}", *QUICK) as process:
        wait_for(lambda: runs(backend) == {"mltcp"}, "a period with mltcp", beside=process)
        pause(process)
        wait_for(lambda: nothing_left(backend), "everything to be put back")
        process.send_signal(signal.SIGCONT)
        _, err = process.communicate(timeout=PATIENCE_S)
        assert "hung for so long" in err
        assert nothing_left(backend)


def test_a_second_trial_is_refused(backend: Backend, mark: str) -> None:
    with job(mark), trial("--job", f"a={mark}", *QUICK):
        wait_for(lambda: (TRIAL_DIR / "trial.json").exists(), "the trial")
        with trial("--job", f"b={mark}", *QUICK) as second:
            _, err = second.communicate(timeout=PATIENCE_S)
        assert (second.returncode, "Another trial runs" in err) == (4, True)


@pytest.mark.parametrize("variant", ["mltcp", "base"])
def test_detach_by_hand_ends_trial_and_job_stays_detached(
    backend: Backend, mark: str, variant: str
) -> None:
    with job(mark), job(mark.replace("mark", "other")) as other:
        assert main(["attach", mark, "--job", "a", "--kind", "all"]) == 0
        with trial("--job", "a", "--job", f"b={other.pid}", *QUICK, "--json") as process:
            wait_for(lambda: not runs(backend), "the first look", beside=process)
            wait_for(lambda: runs(backend) == {"mltcp"}, "a period with mltcp", beside=process)
            if variant == "base":
                wait_for(lambda: not runs(backend), "a period without", beside=process)
            assert main(["detach", "a"]) == 0
            code, found, _ = result(process)
        assert (code, found["verdict"], found["ended"]) == (1, "short", "Somebody detached a.")
        assert nothing_left(backend)
        assert main(["detach", "a"]) == 2


def test_a_job_without_iterations_is_refused(backend: Backend, mark: str) -> None:
    with training(mark, "cc=reno") as silent:
        silent.ask("connect")
        with trial("--job", f"a={mark}", "--detection-time", "4s", "--phase-time", "3s") as process:
            _, err = process.communicate(timeout=60)
        assert (process.returncode, "No iterations of a are known" in err) == (1, True), err
        assert nothing_left(backend)


def test_a_job_that_runs_mltcp_by_itself_is_refused(backend: Backend, mark: str) -> None:
    with training(mark, "cc=mltcp") as own:
        own.ask("connect")
        with trial("--job", f"a={mark}", *QUICK) as process:
            _, err = process.communicate(timeout=60)
        assert (process.returncode, "runs mltcp by itself" in err) == (1, True), err


def test_a_job_that_ends_ends_the_trial(backend: Backend, mark: str) -> None:
    with job(mark) as running, trial("--job", f"a={mark}", *QUICK, "--json") as process:
        wait_for(lambda: runs(backend) == {"mltcp"}, "a period with mltcp", beside=process)
        running.end()
        code, found, _ = result(process)
    assert (code, found["verdict"]) == (1, "short")
    assert "a has" in found["ended"]
    assert nothing_left(backend)


def test_an_agent_lets_its_jobs_be_tried(backend: Backend, mark: str, tmp_path: Path) -> None:
    with agent(tmp_path, rules(mark)) as running, job(mark):
        running.wait_for("attached (reno -> mltcp)")
        wait_for(lambda: len(backend.flows()) == 4, "all of its connections")
        with trial("--job", "trained", *QUICK) as process:
            wait_for(lambda: not runs(backend), "a period without", beside=process)
            wait_for(lambda: runs(backend) == {"mltcp"}, "a period with mltcp", beside=process)
            wait_for(lambda: not runs(backend), "a period without", beside=process)
            process.kill()
            process.wait()
            wait_for(lambda: len(backend.flows()) == 4, "the guardian to put them back")
        wait_for(lambda: not list(TRIAL_DIR.glob("*")), "the guardian's end")
        said = running.said()
        assert "by hand" not in said
        assert "given back" not in said


@pytest.mark.full
def test_the_agent_takes_it_off_a_job_that_it_slows_down(
    backend: Backend, mark: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # With mltcp the job's window grows at a fiftieth of the pace of reno's.
    worse = rules(mark, more=", slope: 0, intercept: 0.02", prove="{share: 50%, period: 6s}")
    with (
        slow_link(f"t{os.getpid()}") as through,
        agent(tmp_path, worse) as running,
        job(mark.replace("mark", "greedy"), 0.0, through),
        job(mark, 0.1, through) as slowed,
    ):
        running.wait_for("attached (reno -> mltcp)")
        wait_for(
            lambda: "gain" in shown(capsys, "status", "jobs", "--json"),
            "the agent's follower's state",
        )
        while "slower with mltcp" not in running.said():
            assert running.process.poll() is None
            time.sleep(1)
        wait_for(lambda: nothing_left(backend), "the job to be detached")
        assert "it is detached until the rules are read again" in running.said()
        assert slowed.process.poll() is None
