# SPDX-License-Identifier: BSD-2-Clause
"""Every TCP socket on this host that runs a congestion control, by the processes that hold it.

Each socket is borrowed and asked. That also finds sockets that sock_diag doesn't list: those that
are neither bound nor connected, or belong to another network namespace than their process.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass

from mltcp_tools.base.errors import HostError
from mltcp_tools.kernel.host.descriptors import cookie_of
from mltcp_tools.live.attach.pidfd import Gone, borrowed, congestion_control
from mltcp_tools.live.attach.processes import PROC, Process, processes
from mltcp_tools.live.attach.sockets import socket_descriptors

_PROTOCOL = "system.sockprotoname"


@dataclass(frozen=True)
class HeldSocket:
    """A TCP socket and a process that holds it as `fd`. name: the congestion control it runs."""

    process: Process
    fd: int
    inode: int
    cookie: int
    name: str

    def borrow(self) -> AbstractContextManager[socket.socket]:
        """Our own descriptor of it; Gone or PermissionError as borrow.borrowed."""
        return borrowed(self.process.pid, self.process.start_ticks, self.fd, self.cookie)


def every_socket(names: Collection[str]) -> Iterator[HeldSocket]:
    """Yield the sockets that run one of the names, each once. Takes CAP_SYS_PTRACE and
    CAP_NET_ADMIN.
    """
    seen: set[int] = set()
    for process in processes():
        with suppress(HostError):  # out of reach: seen by sock_diag, if by anybody
            for inode, fd in socket_descriptors(process).items():
                if inode in seen or not is_tcp(process.pid, fd):
                    continue
                seen.add(inode)
                with suppress(Gone, OSError):
                    with borrowed(process.pid, process.start_ticks, fd, None) as ours:
                        name, cookie = congestion_control(ours), cookie_of(ours)
                    if name in names:
                        yield HeldSocket(process, fd, inode, cookie, name)


def is_tcp(pid: int, fd: int) -> bool:
    """Return whether a socket of a process is a TCP one, as far as the kernel tells without
    asking it.
    """
    try:
        return os.getxattr(PROC / str(pid) / "fd" / str(fd), _PROTOCOL).startswith(b"TCP")
    except OSError:  # closed meanwhile, or a kernel that doesn't say
        return True
