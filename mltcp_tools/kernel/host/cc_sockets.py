# SPDX-License-Identifier: BSD-2-Clause
"""The sockets of this host that run a congestion control, and the processes that hold them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from mltcp_tools.kernel.host.diag import TcpSocket, open_diag, tcp_sockets_running
from mltcp_tools.kernel.host.namespaces import PROC, NetNamespace, in_each, process_name


@dataclass(frozen=True, kw_only=True)
class Driven(TcpSocket):
    """A TCP socket that runs one of the congestion controls asked for.

    pid, fd: a process that holds it and by which descriptor; 0 and -1 where none was found.
    """

    namespace: NetNamespace
    pid: int = 0
    fd: int = -1

    def __str__(self) -> str:
        """For people: what it is and who has it."""
        ends = f"{self.local[0]} port {self.local[1]}"
        if self.state != "listen":
            ends += f" to {self.remote[0]} port {self.remote[1]}"
        held = f"process {process_name(self.pid)}" if self.pid else "no process"
        if self.inode and not self.pid:  # some process has it
            held = "a process that this one may not look into"
        return f"{self.state} socket {ends} of {held}"


def driven(names: Collection[str]) -> list[Driven]:
    """The sockets of all network namespaces that run them, by what the kernel tells."""

    def ask() -> list[TcpSocket]:
        with open_diag() as diag:
            return tcp_sockets_running(diag, names)

    found = [
        Driven(namespace=namespace, **vars(each))
        for namespace, some in in_each(ask)
        for each in some
    ]
    return _with_holders(found)


def _with_holders(found: Iterable[Driven]) -> list[Driven]:
    """The same with a process that holds each, the one with the lowest pid."""
    by_inode = {each.inode: each for each in found if each.inode}
    without = [each for each in found if not each.inode]
    for inode, pid, fd in _descriptors() if by_inode else ():
        if (each := by_inode.get(inode)) is not None and not each.pid:
            by_inode[inode] = replace(each, pid=pid, fd=fd)
    return [*by_inode.values(), *without]


def _descriptors() -> Iterator[tuple[int, int, int]]:
    """Inode, process and descriptor of every socket that a process of this host has."""
    for pid in sorted(int(each) for each in os.listdir(PROC) if each.isdecimal()):
        with contextlib.suppress(OSError):  # it has ended, or is somebody else's
            for fd in sorted(map(int, os.listdir(PROC / str(pid) / "fd"))):
                with contextlib.suppress(OSError):
                    link = os.readlink(PROC / str(pid) / "fd" / str(fd))
                    if link.startswith("socket:["):
                        yield int(link[8:-1]), pid, fd
