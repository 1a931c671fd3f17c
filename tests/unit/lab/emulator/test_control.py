# SPDX-License-Identifier: BSD-2-Clause
"""The control descriptor, with the test in the parent's place."""

from __future__ import annotations

import dataclasses
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support.emulator_processes import PATIENCE_S, PROGRAM, Emulator

from mltcp_tools.base.errors import MltcpError
from mltcp_tools.lab.emulator.control import receive_message
from mltcp_tools.lab.emulator.job import JobSpec
from mltcp_tools.lab.emulator.sockets import congestion_control
from mltcp_tools.lab.emulator.time_shift import TimeShift


@contextmanager
def controlled(*arguments: str) -> Iterator[tuple[Emulator, socket.socket]]:
    """An emulator and the parent's end of its control descriptor."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(PATIENCE_S)
    with ours:
        with theirs:
            emulator = Emulator(*arguments, control=theirs)
        with emulator:
            yield emulator, ours


@contextmanager
def server() -> Iterator[tuple[Emulator, socket.socket, int]]:
    with controlled("server", "--port", "0", "--bind", "127.0.0.1") as (process, control):
        message = receive(control)
        assert message["event"] == "listening"
        yield process, control, message["port"]


@contextmanager
def client(
    port: int, trace_s: float | None = None, **job: Any
) -> Iterator[tuple[Emulator, socket.socket]]:
    """A client that was told its job: 1 MB every 10 ms unless the fields of JobSpec say more."""
    spec = JobSpec(**{"bytes_per_iteration": 1_000_000, "compute_s": 0.01, "cc": "reno"} | job)
    with controlled("client", "127.0.0.1", "--port", str(port)) as (process, control):
        hand_over(control, dataclasses.asdict(spec), trace_s)
        yield process, control


@contextmanager
def connected(**job: Any) -> Iterator[tuple[Emulator, Emulator, socket.socket]]:
    """A server, and a client of one flow with its control descriptor: it may start."""
    with server() as (process, _, port), client(port, **job) as (started, control):
        _, fds = receive_message(control)
        os.close(fds[0])
        yield process, started, control


def receive(control: socket.socket) -> dict[str, Any]:
    message, fds = receive_message(control)
    assert message is not None
    assert fds == []
    return message


def start(control: socket.socket, at: float) -> None:
    control.send(json.dumps({"event": "start", "at": at}).encode())


def hand_over(control: socket.socket, spec: object, trace_s: float | None = None) -> None:
    """Tell a client its job."""
    message = {"event": "job", "name": "a", "spec": spec, "trace_s": trace_s}
    control.send(json.dumps(message).encode())


def result(process: Emulator, expected_code: int = 0) -> dict[str, Any]:
    """Return what a client has written when it has ended."""
    code, out, _ = process.end()
    assert code == expected_code
    document: dict[str, Any] = json.loads(out)
    return document


def test_run_under_control() -> None:
    with server() as (_, _, port), client(port, iterations=3, flows=70) as (process, control):
        flows, last = 0, False
        while not last:
            message, fds = receive_message(control)
            assert message is not None
            assert message["event"] == "connected"
            assert len(fds) <= 64
            for fd in fds:
                with socket.socket(fileno=fd) as sock:
                    assert sock.getpeername() == ("127.0.0.1", port)
                    assert congestion_control(sock) == "reno"
                    assert not sock.get_inheritable()
            flows += len(fds)
            last = message["last"]
        assert flows == 70
        at = time.monotonic() + 0.3
        start(control, at)
        for number in (1, 2, 3):
            assert receive(control) == {"event": "iteration", "iteration": number}
        assert receive(control) == {"event": "done"}
        assert result(process)["iterations"][0]["start"] == at


SPEC = JobSpec(300_000, 0.01, 2, flows=2, weights=(2, 1), time_shifts=TimeShift(0.05, 0.01))


def test_a_job_handed_over_is_the_one_that_runs() -> None:
    with server() as (_, _, port), client(port, **vars(SPEC)) as (process, control):
        _, fds = receive_message(control)
        for fd in fds:
            os.close(fd)
        start(control, time.monotonic())
        for number in (1, 2):
            assert receive(control) == {"event": "iteration", "iteration": number}
        assert receive(control) == {"event": "done"}
        document = result(process)
    given = document["parameters"] | {"cc": None}
    expected = json.loads(json.dumps(dataclasses.asdict(SPEC)))
    assert (document["job"], len(fds)) == ("a", 2)
    assert {name: given[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ("nothing", "must be a JSON object"),
        ({"compute_s": 1.0}, "bytes_per_iteration"),
        (dataclasses.asdict(SPEC) | {"colour": "red"}, "colour"),
        (dataclasses.asdict(SPEC) | {"flows": 0}, "flows must be 1 to 512, not 0"),
    ],
)
def test_a_job_that_is_none_is_refused(spec: object, complaint: str) -> None:
    with controlled("client", "127.0.0.1", "--port", "1") as (process, control):
        hand_over(control, spec)
        code, _, err = process.end()
    assert code == 2
    assert complaint in err


LONG: dict[str, dict[str, Any]] = {
    "before the start": {"compute_s": 60.0},
    "in compute": {"compute_s": 60.0},
    "in a burst": {"bytes_per_iteration": 10**11},
}


@pytest.mark.parametrize("when", ["in compute", "in a burst"])
def test_a_parent_that_says_stop_gets_what_was_measured(when: str) -> None:
    with connected(duration_s=1000.0, trace_s=0.005, **LONG[when]) as (_, process, control):
        start(control, time.monotonic())
        time.sleep(0.2)
        control.send(json.dumps({"event": "stop"}).encode())
        assert receive(control) == {"event": "done"}
        document = result(process)
    assert (document["error"], document["iterations"]) == (None, [])
    assert bool(document["samples"]) == (when == "in a burst")


def test_failure_is_told_after_it_is_written() -> None:
    with connected(duration_s=60.0) as (served, process, control):
        start(control, time.monotonic())
        assert receive(control)["event"] == "iteration"
        served.process.kill()
        while (message := receive(control))["event"] == "iteration":
            pass
        assert select.select([process.process.stdout], [], [], 0)[0]
        document = result(process, 1)
    assert message["event"] == "failed"
    assert "disappeared in iteration" in message["error"]
    assert document["error"] == message["error"]
    assert len(document["iterations"]) >= 1


@pytest.mark.parametrize("when", LONG)
def test_client_ends_with_its_parent(when: str) -> None:
    with connected(iterations=1, **LONG[when]) as (_, process, control):
        if when != "before the start":
            start(control, time.monotonic())
            time.sleep(0.2)
        control.close()
        code, out, _ = process.end()
    assert (code, out) == (1, "")


def test_server_ends_with_its_parent() -> None:
    with server() as (process, control, _):
        control.close()
        assert process.end()[0] == 1


def test_emulator_dies_with_parent_despite_open_descriptor() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        fd = theirs.fileno()
        command = [*PROGRAM, "server", "--port=0", "--bind=127.0.0.1", f"--control-fd={fd}"]
        code = (
            "import subprocess, sys, time\n"
            f"child = subprocess.Popen({command!r}, pass_fds=[{fd}])\n"
            "print(child.pid, flush=True)\n"
            "time.sleep(60)\n"
        )
        parent = subprocess.Popen(
            [sys.executable, "-c", code], pass_fds=[fd], stdout=subprocess.PIPE, text=True
        )
        assert parent.stdout is not None
        with parent.stdout:
            child = os.pidfd_open(int(parent.stdout.readline()))
            try:
                assert receive(ours)["event"] == "listening"
                parent.kill()
                parent.wait()
                # The test still holds both ends, so that there is no EOF to see.
                assert _ended(child)
            finally:
                _kill(child)


def _ended(pidfd: int) -> bool:
    return bool(select.select([pidfd], [], [], PATIENCE_S)[0])


def _kill(pidfd: int) -> None:
    try:
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except ProcessLookupError:
        pass
    finally:
        os.close(pidfd)


@pytest.mark.parametrize("message", [b"hello", b"[]", b"{}", b'{"event": "start"}', b"\xff"])
def test_nonsense_from_the_parent(message: bytes) -> None:
    with server() as (_, _, port), client(port, iterations=1) as (process, control):
        _, fds = receive_message(control)
        os.close(fds[0])
        control.send(message)
        assert "control descriptor" in receive(control)["error"]
        assert process.end()[0] == 1


def test_receive_message_keeps_no_descriptor_of_a_bad_message() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        before = len(os.listdir("/proc/self/fd"))
        socket.send_fds(theirs, [b"nonsense"], [0, 1])
        with pytest.raises(MltcpError, match="isn't a JSON object"):
            receive_message(ours)
        assert len(os.listdir("/proc/self/fd")) == before


def test_parent_that_reads_nothing_does_not_hold_up_the_job() -> None:
    short = {"bytes_per_iteration": 64, "compute_s": 0.0, "iterations": 2000}
    with server() as (_, _, port), client(port, **short) as (process, control):
        _, fds = receive_message(control)
        os.close(fds[0])
        start(control, time.monotonic())
        assert process.process.stdout is not None
        written = b""
        while not written.endswith(b"\n"):
            written += process.process.stdout.read(1 << 16)
        heard = 0
        while receive(control)["event"] == "iteration":
            heard += 1
    assert 0 < heard < 2000
    assert len(json.loads(written)["iterations"]) == 2000
