# SPDX-License-Identifier: BSD-2-Clause
"""A process with TCP connections that tests attach to; if told to, it trains in all but name.

    training_process.py MARK [cc=NAME] [connections=COUNT] [address=ADDRESS] [peer=PORT] [map=FILE]…
        [hooks]

A thread of its own is the connections' peer, and discards what comes. With `connections=COUNT` so
many are there from the beginning, and nobody accepts any. cc: what they run, and the peer's ends.
peer: port of another such process at the address, to which connections go instead. map: a file that
it has mapped, as it would have a library. hooks: it tells iterations to the agent.

A line of JSON says its pid, its listener's port and its connections' descriptors. From then on each
line of its input is a method of `Commands`, which a line of JSON answers; the end of input ends it.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import mmap
import os
import random
import select
import signal
import socket
import struct
import sys
import termios
import threading
import time
from collections import Counter

from renaming import rename  # beside this file

from mltcp_tools import hooks


def discard(peer: socket.socket) -> None:
    buffer = bytearray(1 << 16)
    with contextlib.suppress(OSError), peer:
        while peer.recv_into(buffer):
            pass


def serve(listener: socket.socket) -> None:
    while True:
        peer, _ = listener.accept()
        threading.Thread(target=discard, args=(peer,), daemon=True).start()


def name_of(connection: socket.socket) -> str:
    name: bytes = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
    return name.partition(b"\0")[0].decode()


def choose(sock: socket.socket, name: str) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())


class Commands:
    """The commands, which name connections by their place. The latest one is -1."""

    def __init__(self, address: str, peer: int, cc: str, job: hooks.Job | None) -> None:
        self._cc, self._job = cc, job
        self._family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.listener = socket.create_server(
            ("::" if self._family == socket.AF_INET6 else "" if peer else address, 0),
            family=self._family,
            backlog=4096,
            dualstack_ipv6=self._family == socket.AF_INET6,
        )
        self.address = (address, peer or self.listener.getsockname()[1])
        self.connections: list[socket.socket] = []

    def _socket(self) -> socket.socket:
        found = socket.socket(self._family)
        if self._cc:
            choose(found, self._cc)
        return found

    def names(self) -> list[str]:
        """The congestion control of each connection."""
        return [name_of(each) for each in self.connections]

    def connect(self) -> int:
        """Open one more; its port."""
        self.connections.append(self._socket())
        self.connections[-1].connect(self.address)
        return int(self.connections[-1].getsockname()[1])

    def refused(self) -> None:
        """The same, on a descriptor whose first attempt was refused."""
        found = self._socket()
        with socket.socket(self._family) as deaf:
            deaf.bind((self.address[0], 0))
            with contextlib.suppress(ConnectionRefusedError):
                found.connect(deaf.getsockname())
                raise AssertionError("nobody refused it")
        found.connect(self.address)
        self.connections.append(found)

    def again(self, number: str) -> None:
        """End a connection, and connect its descriptor once more."""
        sock = self.connections[int(number)]
        unspecified = bytes(16)  # a struct sockaddr of AF_UNSPEC
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.connect(sock.fileno(), unspecified, len(unspecified)):
            raise OSError(ctypes.get_errno(), "connect")
        sock.connect(self.address)

    def churn(self, count: str, size: str = "0") -> dict[str, dict[str, int]]:
        """Open connections that end at once, after so many bytes; what their ends ran."""
        ran: dict[str, Counter[str]] = {"connected": Counter(), "accepted": Counter()}
        data = bytes(int(size))
        with socket.create_server((self.address[0], 0), family=self._family) as listener:
            for _ in range(int(count)):
                with self._socket() as ours:
                    ours.connect((self.address[0], listener.getsockname()[1]))
                    ran["connected"][name_of(ours)] += 1
                    theirs, _ = listener.accept()
                    with theirs:
                        ran["accepted"][name_of(theirs)] += 1
                        ours.sendall(data)
                        theirs.recv(len(data), socket.MSG_WAITALL)
        return {end: dict(names) for end, names in ran.items()}

    def close(self, number: str = "-1") -> None:
        self.connections.pop(int(number)).close()

    def replace(self, number: str) -> None:
        """Make its descriptor another connection's."""
        with self._socket() as other:
            other.connect(self.address)
            os.dup2(other.fileno(), self.connections[int(number)].fileno())

    def move(self, number: str) -> None:
        """Give it another descriptor."""
        old = self.connections[int(number)]
        self.connections[int(number)] = old.dup()
        old.close()

    def choose(self, number: str, name: str) -> None:
        choose(self.connections[int(number)], name)

    def reset(self) -> None:
        """Have all connections reset, as nobody has accepted them."""
        self.listener.close()
        for each in self.connections:
            with contextlib.suppress(ConnectionResetError):
                each.recv(1)

    def fork(self, *program: str) -> int:
        """Start a copy that does nothing, and becomes that program on SIGUSR1; its pid."""
        child = os.fork()
        if not child:
            os.closerange(0, 3)
            signal.signal(signal.SIGUSR1, lambda *_: os.execvp(program[0], program))
            signal.alarm(60)  # should the test not end it
            while True:
                signal.pause()
        return child

    def rename(self, title: str) -> None:
        """Have that title in place of the arguments and the environment."""
        rename(title.encode())

    def train(self, count: str, compute_s: str, size: str, jitter: str = "0") -> float:
        """Run iterations over all connections, until `stop` comes; the seconds that took.

        jitter: standard deviation of the compute time, as a share of it.
        """
        begin = time.monotonic()
        for _ in range(int(count)):
            if select.select([sys.stdin], [], [], 0)[0]:
                break
            with self._job.iteration() if self._job else contextlib.nullcontext():
                time.sleep(float(compute_s) * max(0.0, random.gauss(1, float(jitter))))
                self._burst(int(size))
        return time.monotonic() - begin

    def _burst(self, size: int) -> None:
        """Send size bytes over each connection, and wait until all of it is acknowledged."""
        for each in self.connections:
            each.sendall(bytes(size))
        for each in self.connections:
            while struct.unpack("i", fcntl.ioctl(each, termios.TIOCOUTQ, bytes(4)))[0]:
                time.sleep(0.0005)


def main() -> None:
    options = dict(each.split("=", 1) for each in sys.argv[2:] if "=" in each)
    job = hooks.Job() if "hooks" in sys.argv else None
    where = options.get("address", "127.0.0.1"), int(options.get("peer", 0))
    commands = Commands(*where, options.get("cc", ""), job)
    kept = []
    for each in sys.argv:
        if each.startswith("map="):
            with open(each.removeprefix("map="), "rb") as file:
                kept.append(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
    if "connections" not in options:
        if "cc" in options:
            choose(commands.listener, options["cc"])
        threading.Thread(target=serve, args=(commands.listener,), daemon=True).start()
    for _ in range(int(options.get("connections", 0))):
        commands.connect()
    fds = [each.fileno() for each in commands.connections]
    print(json.dumps({"pid": os.getpid(), "port": commands.address[1], "fds": fds}), flush=True)
    for line in sys.stdin:
        what, *arguments = line.split()
        if what != "stop":
            print(json.dumps(getattr(commands, what)(*arguments)), flush=True)


if __name__ == "__main__":
    main()
