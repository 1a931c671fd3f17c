# SPDX-License-Identifier: BSD-2-Clause
"""Clients and servers whose other end misbehaves or goes away, and how each of them ends."""

from __future__ import annotations

import signal
import socket
import threading
from contextlib import closing, suppress

import pytest
from support.emulated import run
from support.emulator_processes import Emulator

from mltcp_tools.base.errors import BusyError, MltcpError, UsageError
from mltcp_tools.lab.emulator.protocol import BurstHeader, Hello, Welcome
from mltcp_tools.lab.emulator.server import EmulatorServer


def _name(sock: socket.socket) -> str:
    """Return how the server's log names this client."""
    return f"127.0.0.1 port {sock.getsockname()[1]}"


def _hello(direction: str = "send") -> bytes:
    return Hello(direction, "").pack()


@pytest.mark.parametrize(
    ("garbage", "logged"),
    [
        (b"GET / HTTP/1.1\r\nHost: example\r\n\r\n" + b"x" * 100, "doesn't speak this protocol"),
        (bytes(1000), "doesn't speak this protocol"),
        (_hello() + bytes(1000), "doesn't speak this protocol"),
        (_hello() + BurstHeader(1, (1 << 64) - 1, 0).pack(), "impossible burst"),
        (_hello() + BurstHeader(1, 1000, 1000).pack(), "wrong direction"),
        (_hello() + BurstHeader(1, 1000, 0).pack() + b"x", "middle of an exchange"),
        (_hello()[:20], "middle of an exchange"),
    ],
    ids=["http", "zeros", "zeros-later", "too-many", "down", "extra", "cut-short"],
)
def test_garbage_is_logged_and_survived(
    server: Emulator, port: int, garbage: bytes, logged: str
) -> None:
    with socket.create_connection(("127.0.0.1", port)) as sock:
        with suppress(OSError):  # the server may have closed by now
            sock.sendall(garbage)
            sock.shutdown(socket.SHUT_WR)
        server.wait_for(f"{_name(sock)} .*{logged}.*\n")
    assert len(run(port).iterations) == 3


def test_silent_clients_are_dropped(server: Emulator, port: int) -> None:
    with (
        socket.create_connection(("127.0.0.1", port)) as silent,
        socket.create_connection(("127.0.0.1", port)) as stalled,
    ):
        stalled.sendall(_hello() + BurstHeader(1, 1000, 0).pack())
        server.wait_for(f"{_name(silent)} dropped: nothing moved for 1 s\n")
        server.wait_for(f"{_name(stalled)} lost \\(nothing moved for 1 s\\)")


def test_client_that_does_not_read_is_dropped(server: Emulator, port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.sendall(_hello("both") + BurstHeader(1, 1000, 1 << 40).pack())
        server.wait_for(f"{_name(sock)} lost \\(")
    assert len(run(port).iterations) == 3


def test_nobody_listens() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(MltcpError, match=r"can't be reached \(connection refused\); start it"):
        run(port)


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "isn't usable .*another program"),
        (b"", "disappeared while connecting .*closed the connection"),
        (Welcome(True, "cubic").pack(), "disappeared in iteration 1"),
        (Welcome(True, "cubic").pack() + b"unasked", "isn't usable"),
        (Welcome(False, "Not today.").pack(), "refused: Not today"),
    ],
)
def test_odd_servers(answer: bytes, complaint: str) -> None:
    def serve(listener: socket.socket) -> None:
        sock, _ = listener.accept()
        with sock:
            sock.recv(Hello.LAYOUT.size, socket.MSG_WAITALL)
            sock.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=[listener])
        thread.start()
        with pytest.raises(MltcpError, match=complaint) as caught:
            run(listener.getsockname()[1], compute_s=0.2)
        assert len(str(caught.value).splitlines()) == 1
        thread.join()


def test_server_that_stops_reading() -> None:
    def serve(listener: socket.socket, release: threading.Event) -> None:
        sock, _ = listener.accept()
        with sock:
            sock.recv(Hello.LAYOUT.size, socket.MSG_WAITALL)
            sock.sendall(Welcome(True, "cubic").pack())
            release.wait()

    release = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=[listener, release])
        thread.start()
        try:
            with pytest.raises(MltcpError, match=r"in iteration 1 .*nothing moved for 1 s"):
                run(listener.getsockname()[1], timeout_s=1.0, bytes_per_iteration=100_000_000)
        finally:
            release.set()
            thread.join()


def _first_iteration(client: Emulator) -> None:
    """Wait until the client says that one is over."""
    assert client.process.stdout is not None
    assert client.process.stdout.readline().startswith(b"iteration 1: ")


def test_what_was_measured_is_written_when_the_server_dies() -> None:
    with Emulator("server", "--port", "0", "--bind", "127.0.0.1") as server:
        arguments = [f"--port={server.port()}", "--bytes=10kB", "--compute=10ms", "--duration=60s"]
        with Emulator("client", "127.0.0.1", *arguments) as client:
            _first_iteration(client)
            server.process.kill()
            code, out, err = client.end()
    assert code == 1
    assert err.startswith("mltcp: error: The server at 127.0.0.1 port")
    assert len(err.splitlines()) == 1
    assert " iterations in " in out


def test_interrupted_client_writes_what_it_measured(port: int) -> None:
    arguments = [f"--port={port}", "--bytes=10kB", "--compute=10ms", "--duration=60s"]
    with Emulator("client", "127.0.0.1", *arguments) as client:
        _first_iteration(client)
        client.process.send_signal(signal.SIGINT)
        code, out, err = client.end()
    assert code == 130
    assert "Traceback" not in err
    assert " iterations in " in out


def test_port_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(BusyError, match=f"Port {port} is in use"):
            EmulatorServer(port, "127.0.0.1")


@pytest.mark.parametrize("bind", ["192.0.2.1", "nosuch.invalid"])
def test_foreign_address(bind: str) -> None:
    with pytest.raises(UsageError, match="address"):
        EmulatorServer(0, bind)
