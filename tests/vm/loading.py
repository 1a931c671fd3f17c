# SPDX-License-Identifier: BSD-2-Clause
"""Loading the kernel module in a VM, and connections that use it."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from netns.connections import TCP_CONGESTION

from mltcp_tools.kernel.congestion_controls import NAMES
from mltcp_tools.kernel.host import facts
from mltcp_tools.kernel.host.facts import read_sysctl
from mltcp_tools.lab.testbed.namespaces import write_sysctl

MODULE = Path("/sys/module/tcp_mltcp")
FILE = Path("/lib/modules", os.uname().release, "updates/tcp_mltcp.ko")
SLAB = Path("/sys/kernel/slab/mltcp_sock")

FINIT_MODULE, DELETE_MODULE = 313, 176  # x86_64; libc has no functions for them
libc = ctypes.CDLL(None, use_errno=True)


def insert(path: Path = FILE, parameters: str = "") -> None:
    """Load a module, ours, without a process: in a VM each costs a tenth of a second."""
    with path.open("rb") as file:
        if libc.syscall(FINIT_MODULE, file.fileno(), parameters.encode(), 0):
            raise OSError(ctypes.get_errno(), "finit_module")


def remove(seconds: float = 20, name: str = "tcp_mltcp") -> None:
    """Unload a module once the sockets that were closed just now are gone from the kernel."""
    deadline = time.monotonic() + seconds
    while libc.syscall(DELETE_MODULE, name.encode(), os.O_NONBLOCK):
        number = ctypes.get_errno()
        if number != errno.EAGAIN or time.monotonic() > deadline:
            raise OSError(number, f"delete_module: {os.strerror(number)}")
        time.sleep(0.05)


def registered() -> set[str]:
    return set(NAMES) & set(facts.available_congestion_controls())


def chosen(sock: socket.socket) -> str:
    name: bytes = sock.getsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, 16)
    return name.partition(b"\0")[0].decode()


def choose(sock: socket.socket, name: str) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, name.encode())


def allow(name: str) -> None:
    """Let any namespace choose it, as long as the module is loaded."""
    allowed = read_sysctl("net.ipv4.tcp_allowed_congestion_control")
    if name not in allowed.split():
        write_sysctl("net.ipv4.tcp_allowed_congestion_control", f"{allowed} {name}")


def connected(name: str, family: int = socket.AF_INET) -> tuple[socket.socket, socket.socket]:
    """Two ends of a connection; the first has that congestion control."""
    address = "::1" if family == socket.AF_INET6 else "127.0.0.1"
    with (
        socket.create_server((address, 0), family=family) as server,
        contextlib.ExitStack() as stack,
    ):
        sender = stack.enter_context(socket.socket(family))
        choose(sender, name)
        sender.connect(server.getsockname())
        peer = server.accept()[0]
        stack.pop_all()
        return sender, peer


def disconnect(sock: socket.socket) -> None:
    """Let it connect anew, or listen: connect() to AF_UNSPEC."""
    address = bytes(16)
    if libc.connect(sock.fileno(), address, len(address)):
        raise OSError(ctypes.get_errno(), "connect")


@contextlib.contextmanager
def pair(name: str) -> Iterator[tuple[socket.socket, socket.socket]]:
    """The same, closed afterwards."""
    sender, peer = connected(name)
    with sender, peer:
        yield sender, peer
