# SPDX-License-Identifier: BSD-2-Clause
"""The hooks in a training loop: what they send, and that nothing can make them fail or wait."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mltcp_tools import hooks
from mltcp_tools.live.sources.messages import Mailbox, Message


@pytest.fixture
def mailbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mailbox]:
    path = tmp_path / "agent.sock"
    monkeypatch.setenv("MLTCP_AGENT_SOCKET", str(path))
    monkeypatch.delenv("MLTCP_JOB", raising=False)
    with Mailbox(path) as box:
        yield box


def received(box: Mailbox) -> list[Message]:
    return list(box.receive())


def test_an_iteration_is_one_message(mailbox: Mailbox) -> None:
    job = hooks.Job("gpt2")
    before = time.monotonic()
    for size in (None, 5_000_000):
        with job.iteration(bytes=size):
            time.sleep(0.01)
    first, second = received(mailbox)
    assert (first.pid, first.uid, first.job) == (os.getpid(), os.getuid(), "gpt2")
    assert (first.number, second.number) == (1, 2)
    assert (first.bytes, second.bytes) == (None, 5_000_000)
    assert first.busy_s is None
    assert before <= first.begin_s <= first.end_s - 0.01
    assert first.end_s <= second.begin_s
    assert (job.sent, job.dropped) == (2, 0)


def test_steps_of_a_plain_loop_are_iterations_between_them(mailbox: Mailbox) -> None:
    job = hooks.Job("plain")
    for _ in range(4):
        job.step()
    messages = received(mailbox)
    assert [message.number for message in messages] == [1, 2, 3]
    for before, after in itertools.pairwise(messages):
        assert before.end_s == after.begin_s


def test_collectives_are_added_up(mailbox: Mailbox) -> None:
    job = hooks.Job("sums")
    with job.iteration():
        now = time.monotonic_ns()
        job.communicated(100, now, now + 1000)
        job.communicated(200, now, now + 500)
        time.sleep(0.001)
    with job.iteration():
        pass
    first, second = received(mailbox)
    assert (first.bytes, second.bytes) == (300, None)
    assert first.busy_s == pytest.approx(1.5e-6)


def test_an_iteration_that_fails_is_not_reported_and_fails(mailbox: Mailbox) -> None:
    job = hooks.Job("failing")

    def train() -> None:
        with job.iteration():
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train()
    assert received(mailbox) == []


def test_the_environment_names_the_job(mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLTCP_JOB", "from-environment")
    for job in (hooks.Job(), hooks.Job("given")):
        with job.iteration():
            pass
    assert [message.job for message in received(mailbox)] == ["from-environment", "given"]


@pytest.mark.parametrize("name", ["ä" * 40, "a\nb\x1b[2J", "\ud800x", "x" * 500, "", 7])
def test_any_name_is_made_fit(mailbox: Mailbox, name: str) -> None:
    with hooks.Job(name).iteration():
        pass
    (message,) = received(mailbox)
    assert message.job.isprintable()
    assert len(message.job.encode()) <= hooks.NAME_BYTES


@pytest.mark.parametrize(
    "path", ["/nonexistent/agent.sock", "/", "/etc/passwd", "x" * 500, "a\0b", ""]
)
def test_no_agent_is_no_error(path: str) -> None:
    job = hooks.Job("lonely")
    job._path = path
    for _ in range(3):
        with job.iteration():
            pass
    assert (job.sent, job.dropped) == (0, 3)


@pytest.mark.parametrize("size", ["many", -1, 2**70, 1.5, object()])
def test_wrong_bytes_are_no_error(mailbox: Mailbox, size: object) -> None:
    job = hooks.Job("wrong")
    with job.iteration(bytes=size):  # type: ignore[arg-type]
        pass
    job.communicated(size, 0, 1)  # type: ignore[arg-type]
    job.step()
    job.step(size)  # type: ignore[arg-type]
    assert job.sent + job.dropped >= 2
    received(mailbox)


def test_an_agent_that_does_not_read_holds_nobody_up(mailbox: Mailbox) -> None:
    job = hooks.Job("fast")
    for _ in range(5000):
        with job.iteration():
            pass
    assert job.dropped > 0
    assert job.sent + job.dropped == 5000
    assert len(list(mailbox.receive(10_000))) == job.sent
    with job.iteration():  # the agent reads again
        pass
    assert len(received(mailbox)) == 1


def test_an_agent_that_comes_back_is_found_again(tmp_path: Path) -> None:
    job = hooks.Job("patient")
    job._path = str(tmp_path / "agent.sock")
    for _ in range(2):
        with Mailbox(tmp_path / "agent.sock") as box:
            deadline = time.monotonic() + 20
            while not (messages := received(box)) and time.monotonic() < deadline:
                with job.iteration():
                    time.sleep(0.05)
            assert messages
        with job.iteration():
            pass


def test_children_speak_for_themselves(mailbox: Mailbox) -> None:
    job = hooks.Job("forked")
    with job.iteration():
        pass
    child = os.fork()
    if not child:
        with job.iteration():
            pass
        os._exit(0)
    os.waitpid(child, 0)
    assert [message.pid for message in received(mailbox)] == [os.getpid(), child]


def test_threads_may_share_a_job(mailbox: Mailbox) -> None:
    job = hooks.Job("threads")

    def loop() -> None:
        for _ in range(200):
            with job.iteration(bytes=1):
                pass

    threads = [threading.Thread(target=loop) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(message.bytes == 1 for message in mailbox.receive(10_000))


def test_the_file_alone_is_enough_for_a_training_image(tmp_path: Path) -> None:
    shutil.copy(hooks.__file__, tmp_path / "hooks.py")
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import hooks\n"
        "job = hooks.Job('gpt2')\n"
        "with job.iteration(): pass\n"
        "assert not any(name.startswith('mltcp_tools') for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-I", "-S", "-c", code, tmp_path], check=True)
