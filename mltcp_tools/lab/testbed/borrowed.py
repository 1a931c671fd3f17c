# SPDX-License-Identifier: BSD-2-Clause
"""Sockets of another process: the receiver's, where it sends, so that they can be tagged."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Sequence

from mltcp_tools.base.errors import MltcpError
from mltcp_tools.kernel.host.descriptors import pidfd_getfd


def borrow(pid: int, peers: Sequence[tuple[str, int]]) -> list[int]:
    """Our copies of the sockets of process `pid` that are connected to `peers`, in that order."""
    found: dict[tuple[str, int], int] = {}
    pidfd = os.pidfd_open(pid)
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            try:
                if not os.readlink(f"/proc/{pid}/fd/{name}").startswith("socket:"):
                    continue
            except FileNotFoundError:
                continue  # closed since
            try:
                fd = pidfd_getfd(pidfd, int(name))
            except OSError as error:
                raise MltcpError(
                    f"A socket of the receiver can't be copied ({error.strerror})."
                ) from error
            with socket.socket(fileno=fd) as sock, contextlib.suppress(OSError):
                peer = sock.getpeername()
                if sock.family == socket.AF_INET and peer in peers:
                    found[peer] = os.dup(fd)
    finally:
        os.close(pidfd)
    if len(found) < len(peers):
        for fd in found.values():
            os.close(fd)
        raise MltcpError(
            f"The receiver has {len(found)} of the {len(peers)} sockets that are to be tagged."
        )
    return [found[peer] for peer in peers]
