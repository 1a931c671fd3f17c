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
from pathlib import Path
from typing import Any

import pytest
from support.emulator_processes import EMULATE, PATIENCE_S, Emulator, read_document

from mltcp_tools.emulator.control import Control, receive_message
from mltcp_tools.emulator.job import JobSpec
from mltcp_tools.emulator.sockets import congestion_control
from mltcp_tools.emulator.turns import Turns
from mltcp_tools.errors import MltcpError, UsageError


@contextmanager
def controlled(*arguments: str) -> Iterator[tuple[Emulator, socket.socket]]:
    """An emulator and the parent's end of its control descriptor."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(PATIENCE_S)
    with ours:
        with theirs:
            fd = theirs.fileno()
            emulator = Emulator(*arguments, "--control-fd", str(fd), pass_fds=[fd])
        with emulator:
            yield emulator, ours


@contextmanager
def server() -> Iterator[tuple[Emulator, socket.socket, int]]:
    with controlled("server", "--port", "0", "--bind", "127.0.0.1") as (process, control):
        message = receive(control)
        assert message["event"] == "listening"
        yield process, control, message["port"]


@contextmanager
def connected(*options: str) -> Iterator[tuple[Emulator, Emulator, socket.socket]]:
    """A server, and a client of one flow with its control descriptor: it may start."""
    with server() as (process, _, port), controlled(*job(port, *options)) as (client, control):
        _, fds = receive_message(control)
        os.close(fds[0])
        yield process, client, control


def receive(control: socket.socket) -> dict[str, Any]:
    message, fds = receive_message(control)
    assert message is not None
    assert fds == []
    return message


def start(control: socket.socket, at: float) -> None:
    control.send(json.dumps({"event": "start", "at": at}).encode())


def job(port: int, *more: str) -> list[str]:
    arguments = f"client 127.0.0.1 --port {port} --bytes 1MB --compute 10ms --cc reno"
    return [*arguments.split(), *more]


def test_run_under_control(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    options = ("--iterations", "3", "--flows", "70", "--output", str(path))
    with server() as (_, _, port), controlled(*job(port, *options)) as (client, control):
        flows: list[dict[str, Any]] = []
        last = False
        while not last:
            message, fds = receive_message(control)
            assert message is not None
            assert message["event"] == "connected"
            assert len(fds) == len(message["flows"]) <= 64
            for fd, flow in zip(fds, message["flows"], strict=True):
                with socket.socket(fileno=fd) as sock:
                    assert list(sock.getsockname()) == flow["local"]
                    assert list(sock.getpeername()) == flow["remote"] == ["127.0.0.1", port]
                    assert congestion_control(sock) == "reno"
                    assert not sock.get_inheritable()
            flows += message["flows"]
            last = message["last"]
        assert [flow["flow"] for flow in flows] == list(range(70))
        at = time.monotonic() + 0.3
        start(control, at)
        for number in (1, 2, 3):
            assert receive(control) == {"event": "iteration", "iteration": number}
        assert receive(control) == {"event": "done"}
        document = read_document(path)
        code, out, _ = client.end()
    assert code == 0
    assert out == ""
    assert document["iterations"][0]["start"] == at


def hand_over(control: socket.socket, spec: object) -> None:
    """Tell a client its job."""
    message = {"event": "job", "name": "a", "spec": spec, "trace_s": None}
    control.send(json.dumps(message).encode())


SPEC = JobSpec(300_000, 0.01, 2, flows=2, weights=(2, 1), turns=Turns(0.05, 0.01))


def test_a_job_handed_over_is_the_one_that_runs(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    with server() as (_, _, port):
        arguments = ("client", "127.0.0.1", "--port", str(port), "--output", str(path))
        with controlled(*arguments) as (client, control):
            hand_over(control, dataclasses.asdict(SPEC))
            _, fds = receive_message(control)
            for fd in fds:
                os.close(fd)
            start(control, time.monotonic())
            for number in (1, 2):
                assert receive(control) == {"event": "iteration", "iteration": number}
            assert receive(control) == {"event": "done"}
            assert client.end()[0] == 0
    document = read_document(path)
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
    with controlled("client", "127.0.0.1") as (client, control):
        hand_over(control, spec)
        code, _, err = client.end()
    assert code == 2
    assert complaint in err


LONG = {
    "before the start": "--compute=60s",
    "in compute": "--compute=60s",
    "in a burst": "--bytes=100GB",
}


@pytest.mark.parametrize("when", ["in compute", "in a burst"])
def test_a_parent_that_says_stop_gets_what_was_measured(when: str, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    options = ("--duration=1000s", "--trace=5ms", "--output", str(path), LONG[when])
    with connected(*options) as (_, client, control):
        start(control, time.monotonic())
        time.sleep(0.2)
        control.send(json.dumps({"event": "stop"}).encode())
        assert receive(control) == {"event": "done"}
        assert client.end()[0] == 0
    document = read_document(path)
    assert (document["error"], document["iterations"]) == (None, [])
    assert bool(document["samples"]) == (when == "in a burst")


def test_start_in_the_past_is_now(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    options = ("--iterations", "1", "--output", str(path))
    with connected(*options) as (_, client, control):
        before = time.monotonic()
        start(control, before - 100.0)
        assert client.end()[0] == 0
    assert read_document(path)["iterations"][0]["start"] >= before


def test_failure_is_told_after_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    options = ("--duration=60s", "--output", str(path))
    with connected(*options) as (process, client, control):
        start(control, time.monotonic())
        assert receive(control)["event"] == "iteration"
        process.process.kill()
        while (message := receive(control))["event"] == "iteration":
            pass
        document = read_document(path)
        assert client.end()[0] == 1
    assert message["event"] == "failed"
    assert "disappeared in iteration" in message["error"]
    assert document["error"] == message["error"]
    assert len(document["iterations"]) >= 1


def test_refusal_is_told_too() -> None:
    with server() as (_, _, port), controlled(*job(port, "--cc", "nosuch")) as (client, control):
        message = receive(control)
        assert message["event"] == "failed"
        assert "no congestion control 'nosuch'" in message["error"]
        assert client.end()[0] == 3


@pytest.mark.parametrize("when", LONG)
def test_client_ends_with_its_parent(when: str, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    options = ("--iterations", "1", "--output", str(path), LONG[when])
    with connected(*options) as (_, client, control):
        if when != "before the start":
            start(control, time.monotonic())
            time.sleep(0.2)
        control.close()
        assert client.end()[0] == 1
    assert not path.exists()


def test_server_ends_with_its_parent() -> None:
    with server() as (process, control, _):
        control.close()
        assert process.end()[0] == 1


def test_emulator_dies_with_its_parent_although_the_descriptor_stays_open() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        fd = theirs.fileno()
        command = [*EMULATE, "server", "--port=0", "--bind=127.0.0.1", f"--control-fd={fd}"]
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
    with server() as (_, _, port), controlled(*job(port)) as (client, control):
        _, fds = receive_message(control)
        os.close(fds[0])
        control.send(message)
        assert "control descriptor" in receive(control)["error"]
        assert client.end()[0] == 1


def test_receive_message_at_the_end() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    theirs.close()
    with ours:
        assert receive_message(ours) == (None, [])


def test_receive_message_keeps_no_descriptor_of_a_bad_message() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        before = len(os.listdir("/proc/self/fd"))
        socket.send_fds(theirs, [b"nonsense"], [0, 1])
        with pytest.raises(MltcpError, match="isn't a JSON object"):
            receive_message(ours)
        assert len(os.listdir("/proc/self/fd")) == before


def test_parent_that_reads_nothing_does_not_hold_up_the_job(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    options = ("--bytes=64B", "--compute=0", "--iterations=2000", "--output", str(path))
    with server() as (_, _, port), controlled(*job(port, *options)) as (_, control):
        _, fds = receive_message(control)
        os.close(fds[0])
        start(control, time.monotonic())
        deadline = time.monotonic() + PATIENCE_S
        while not path.exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        heard = 0
        while receive(control)["event"] == "iteration":
            heard += 1
    assert 0 < heard < 2000
    assert len(read_document(path)["iterations"]) == 2000


def test_wrong_kind_of_descriptor() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(UsageError, match="SOCK_SEQPACKET"):
        Control(ours.fileno())
