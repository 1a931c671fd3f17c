# SPDX-License-Identifier: BSD-2-Clause
"""Verdicts of whole trials on jobs that share a link, in virtual time."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from netns.backends_here import backend_fixture, fresh_and_loaded
from netns.test_trial import nothing_left, result, runs, trial
from netns.trainings import Training, training
from support.waiting import wait_for
from vm.machines import VIRTUAL_TIME

from mltcp_tools.cli.main import main
from mltcp_tools.kernel.backends.base import Backend
from mltcp_tools.lab.experiments.links import Link
from mltcp_tools.lab.testbed.network import RECEIVER_ADDRESS, Dumbbell

pytestmark = [VIRTUAL_TIME, pytest.mark.full]
backend = backend_fixture(fresh_and_loaded, ["kmod"])

QUICK = ("--phase-time", "3s", "--seed", "1", "--json")
Start = Callable[..., int]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a job under reno on a host of its own, or beside the last one, and give its pid. All
    send to another host over one link, which a burst of a job occupies for 47 ms."""
    with (
        Dumbbell(f"t{os.getpid()}", Link(100_000_000, 30_000), {}, 4) as network,
        contextlib.ExitStack() as stack,
    ):

        def job(namespace: str, *words: str) -> Training:
            through = ("ip", "netns", "exec", namespace)
            where = f"address={RECEIVER_ADDRESS}"
            return stack.enter_context(training("job", where, *words, through=through))

        receiver = job(network.receiver)

        hosts: list[str] = []

        def started(compute_s: float = 0.056, size: int = 560_000, beside: bool = False) -> int:
            hosts.append(hosts[-1] if beside else network.senders.pop())
            found = job(hosts[-1], "cc=reno", f"peer={receiver.port}")
            found.ask("connect")
            found.tell(f"train 1000000 {compute_s} {size} 0.05")
            return found.pid

        yield started


def tried(jobs: str, *words: str) -> tuple[int, dict[str, Any]]:
    """The exit code and the document of a trial of these jobs, whose sentences are printed."""
    with trial("--job", jobs, *QUICK, *words) as process:
        code, found, said = result(process)
    print(said, found["in_short"])
    return code, found


def test_jobs_that_collide_are_found_to_gain(backend: Backend, start: Start) -> None:
    # Together they need 94 % of the link, and a burst lasts twenty round trips of a full queue.
    # Where it lasts five, nothing is lost by reno either.
    jobs = ",".join(f"{name}={start(0.153)}" for name in "abcd")
    code, found = tried(jobs)
    assert (code, found["verdict"]) == (0, "faster")
    assert found["together"]["high"] < 0
    assert found["in_short"].endswith("or a rule of the agent.")
    assert nothing_left(backend)


def test_a_job_alone_shows_no_difference(backend: Backend, start: Start) -> None:
    code, found = tried(f"a={start()}")
    assert code == 0
    assert -0.03 < found["together"]["low"] < found["together"]["high"] < 0.03
    assert nothing_left(backend)


def test_newcomer_discards_a_round_and_the_trial_goes_on(backend: Backend, start: Start) -> None:
    with trial("--job", f"a={start()}", *QUICK) as process:
        # Between a round's two periods: one that is there in nearly all of both changes neither.
        wait_for(lambda: runs(backend) == {"mltcp"}, "a period with mltcp", beside=process)
        wait_for(lambda: not runs(backend), "a period without", beside=process)
        start(0.1, 240_000, beside=True)
        code, found, said = result(process)
    print(said, found["in_short"])
    (discarded,) = [each["discarded"] for each in found["rounds"] if each["discarded"]]
    assert any(each.startswith("Other traffic on ") for each in discarded)
    assert (code, found["together"]["rounds"]) == (0, 8)
    assert "1 of 9 rounds were discarded." in found["in_short"]
    assert nothing_left(backend)


def test_guard_ends_trial_of_job_that_mltcp_slows(backend: Backend, start: Start) -> None:
    start(0, 12_000_000)  # takes what the job's window doesn't claim
    # With mltcp that grows at a fiftieth of the pace of reno's.
    slow = ("--slope", "0", "--intercept", "0.02")
    assert main(["attach", str(start()), "--job", "a", *slow, "--kind", "all"]) == 0
    code, found = tried("a")
    assert (code, found["verdict"]) == (1, "stopped")
    assert "right after without: +" in found["ended"]
    assert "Leave these jobs" in found["in_short"]
    assert main(["detach", "a"]) == 0
    assert nothing_left(backend)
