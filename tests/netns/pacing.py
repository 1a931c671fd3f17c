# SPDX-License-Identifier: BSD-2-Clause
"""The pacing of connections by TCP, which no system call tells."""

from __future__ import annotations

import contextlib
import socket
import struct
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

from netns.own_programs import compile_here

from mltcp_tools.lab.testbed.backend import socket_cookie

SO_MAX_PACING_RATE = 47
NOBODY, NEEDED = 0, 1
"""enum sk_pacing of include/net/sock.h."""


@contextlib.contextmanager
def listing(folder: Path) -> Iterator[Path]:
    """A file that lists how each connection of its reader's namespace is paced."""
    pinned = Path(f"/sys/fs/bpf/mltcp-test-pacing-{uuid.uuid4().hex[:8]}")
    command = ["bpftool", "iter", "pin", str(compile_here("pacing", folder)), str(pinned)]
    subprocess.run(command, check=True, capture_output=True)
    try:
        yield pinned
    finally:
        pinned.unlink()


def statuses(pacing: Path, socks: Sequence[socket.socket]) -> list[int]:
    """Each one's enum sk_pacing; all are connections of the calling thread's namespace."""
    # The kernel makes a cookie when it is asked for it.
    cookies = [socket_cookie(each.fileno()) for each in socks]
    found: dict[int, int] = dict(struct.iter_unpack("=QQ", pacing.read_bytes()))
    return [found[cookie] for cookie in cookies]


def status(pacing: Path, sock: socket.socket) -> int:
    (found,) = statuses(pacing, [sock])
    return found


def choose(sock: socket.socket, name: str) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())


def limit(sock: socket.socket, rate: int) -> None:
    sock.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, rate.to_bytes(4, sys.byteorder))
