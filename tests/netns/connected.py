"""Processes with TCP connections that tests attach to, told over a pipe what to do next.

    holder:  a listener that never accepts  <-- connections, over loopback

Run as a script it is such a process: each line on its standard input is a command, answered by one
line of JSON. It ends with its standard input.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pyroute2 import netns

FIRST_CC = "reno"
"""What the connections run before anything is attached."""


class Holder:
    """A process with connections. `pid`: as the host sees it. `fds`: of the connections."""

    def __init__(
        self,
        count: int = 3,
        address: str = "127.0.0.1",
        through: Sequence[str] = (),
        maps: Sequence[Path] = (),
        environment: dict[str, str] | None = None,
    ) -> None:
        script = [sys.executable, __file__, str(count), address, *map(str, maps)]
        self.process = subprocess.Popen(
            [*through, *script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | (environment or {}),
        )
        started = self._answer()
        self.fds: list[int] = started["fds"]
        self.port: int = started["port"]
        self.pid = self._pid_here(started["pid"])

    def _pid_here(self, pid: int) -> int:
        """Of the script: the child of what it was started through, if that stays."""
        if self.process.pid == pid:
            return pid
        below = wait_for(lambda: list(_descendants(self.process.pid)), "the process in between")
        return below[-1] if below else self.process.pid

    def ask(self, *command: object) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(map(str, command)) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the process ended with {self.process.wait()}"
        return json.loads(line)

    def congestion_controls(self) -> list[str]:
        """What the open connections run, by their own account."""
        names: list[str] = self.ask("names")
        return names

    def end(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        self.process.wait(30)


def with_pid(pid: int) -> Holder:
    """A new process that gets that pid, which is free."""
    for _ in range(200):
        Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1))
        found = Holder(2)
        if found.pid == pid:
            return found
        found.end()  # somebody else on this host was faster
    raise AssertionError(f"no process got the pid {pid}")


@contextlib.contextmanager
def holder(count: int = 3, address: str = "127.0.0.1", **options: Any) -> Iterator[Holder]:
    found = Holder(count, address, **options)
    try:
        yield found
    finally:
        found.end()


def _descendants(pid: int) -> Iterator[int]:
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        yield int(child)
        yield from _descendants(int(child))


@contextlib.contextmanager
def namespace() -> Iterator[str]:
    """A network namespace with nothing but loopback, by name."""
    name = f"mltcp-test-{os.getpid()}-{uuid.uuid4().hex[:4]}"
    netns.create(name)
    try:
        subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
        yield name
    finally:
        netns.remove(name)


def wait_for(ask: Callable[[], Any], what: str, seconds: float = 60) -> Any:
    """The first answer that is true."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if answer := ask():
            return answer
        time.sleep(0.01)
    raise AssertionError(f"waited {seconds} s for {what}")


def _connect(address: tuple[Any, ...], family: socket.AddressFamily) -> socket.socket:
    found = socket.socket(family)
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, FIRST_CC.encode())
    found.connect(address)
    return found


def _name(sock: socket.socket) -> str:
    name: bytes = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
    return name.partition(b"\0")[0].decode()


def _hold(count: int, address: str, maps: Sequence[str]) -> None:
    kept = []
    for path in maps:
        with open(path, "rb") as file:
            kept.append(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.create_server(
        ("::" if family == socket.AF_INET6 else address, 0),
        family=family,
        backlog=4096,
        dualstack_ipv6=family == socket.AF_INET6,
    )
    target = (address, listener.getsockname()[1])
    sockets = [_connect(target, family) for _ in range(count)]

    def say(answer: object) -> None:
        print(json.dumps(answer), flush=True)

    say({"pid": os.getpid(), "port": target[1], "fds": [each.fileno() for each in sockets]})
    for line in sys.stdin:
        match line.split():
            case ["names"]:
                say([_name(each) for each in sockets])
            case ["connect"]:
                sockets.append(_connect(target, family))
                say("connected")
            case ["close", number]:
                sockets.pop(int(number)).close()
                say("closed")
            case ["replace", number]:  # the same descriptor becomes another connection
                old = sockets[int(number)]
                with _connect(target, family) as other:
                    os.dup2(other.fileno(), old.fileno())
                say("replaced")
            case ["move", number]:  # the same connection becomes another descriptor
                old = sockets[int(number)]
                sockets[int(number)] = old.dup()
                old.close()
                say(sockets[int(number)].fileno())
            case ["choose", number, name]:
                sockets[int(number)].setsockopt(
                    socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode()
                )
                say("chosen")
            case ["reset"]:  # of all connections, as nobody has accepted them
                listener.close()
                for each in sockets:
                    with contextlib.suppress(ConnectionResetError):
                        each.recv(1)
                say("reset")
            case ["fork"]:  # a child that has all of the sockets and nothing else
                if pid := os.fork():
                    say(pid)
                else:
                    os.closerange(0, 3)
                    signal.alarm(60)  # should the test not end it
                    signal.pause()


if __name__ == "__main__":
    _hold(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
