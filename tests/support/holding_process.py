# SPDX-License-Identifier: BSD-2-Clause
"""A process with TCP connections that tests attach to, told over a pipe what to do next.

    a listener that never accepts  <-- connections, over loopback

    python holding_process.py COUNT ADDRESS [FILE_TO_MAP ...]

Each line on its standard input is a command, answered by one line of JSON. It ends with its
standard input.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import mmap
import os
import signal
import socket
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

FIRST_CC = "reno"
"""The connections' congestion control before anything is attached."""


def _connect(address: tuple[Any, ...], family: socket.AddressFamily) -> socket.socket:
    found = socket.socket(family)
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, FIRST_CC.encode())
    found.connect(address)
    return found


def _connect_again(address: tuple[Any, ...], family: socket.AddressFamily) -> socket.socket:
    """A connection of a socket that was refused before."""
    found = socket.socket(family)
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, FIRST_CC.encode())
    with socket.socket(family) as deaf:
        deaf.bind((address[0], 0))
        with contextlib.suppress(ConnectionRefusedError):
            found.connect(deaf.getsockname())
            raise AssertionError("nobody refused it")
    found.connect(address)
    return found


def _disconnect(sock: socket.socket) -> None:
    """End its connection, so that it may connect once more."""
    unspecified = bytes(16)  # a struct sockaddr of AF_UNSPEC
    if ctypes.CDLL(None, use_errno=True).connect(sock.fileno(), unspecified, len(unspecified)):
        raise OSError(ctypes.get_errno(), "connect")


def _name(sock: socket.socket) -> str:
    name: bytes = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
    return name.partition(b"\0")[0].decode()


def _churn(
    near: tuple[Any, ...], family: socket.AddressFamily, count: int, data: bytes
) -> dict[str, dict[str, int]]:
    ran: dict[str, Counter[str]] = {"connected": Counter(), "accepted": Counter()}
    with socket.create_server((near[0], 0), family=family) as listener:
        for _ in range(count):
            with _connect((near[0], listener.getsockname()[1]), family) as ours:
                ran["connected"][_name(ours)] += 1
                theirs, _ = listener.accept()
                with theirs:
                    ran["accepted"][_name(theirs)] += 1
                    ours.sendall(data)
                    theirs.recv(len(data), socket.MSG_WAITALL)
    return {end: dict(names) for end, names in ran.items()}


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
            case ["refused"]:  # a connection on a descriptor whose first attempt was refused
                sockets.append(_connect_again(target, family))
                say("connected")
            case ["again", number]:  # the same descriptor connects once more
                _disconnect(sockets[int(number)])
                sockets[int(number)].connect(target)
                say("connected")
            case ["churn", number, *data]:  # connections that end at once, and what their ends ran
                say(_churn(target, family, int(number), bytes(int(*data))))
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
