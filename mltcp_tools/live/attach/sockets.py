# SPDX-License-Identifier: BSD-2-Clause
"""The TCP sockets of a process: its descriptors joined with what sock_diag knows of them."""

from __future__ import annotations

import os
import socket
from collections import defaultdict
from collections.abc import Iterable, Set
from contextlib import suppress
from dataclasses import dataclass

from pyroute2 import netns

from mltcp_tools.base.errors import HostError, UnknownError
from mltcp_tools.kernel.backends.bpf_sockets import kernel_sockets
from mltcp_tools.kernel.host.diag import TcpSocket, open_diag, tcp_sockets
from mltcp_tools.kernel.host.namespaces import inside
from mltcp_tools.live.attach import privileges
from mltcp_tools.live.attach.processes import PROC, Process

CAN_SEND = ("established", "close-wait")
"""States of a connection over which the process can still send."""


@dataclass(frozen=True, kw_only=True)
class Socket(TcpSocket):
    """One TCP socket of one process.

    fd: the (lowest) descriptor by which the process holds it. netns: inode of its network
    namespace. family: 4 or 6; a v4-mapped connection is one of IPv4.
    """

    process: Process
    fd: int
    netns: int
    family: int

    @property
    def pid(self) -> int:
        """The process's."""
        return self.process.pid

    @property
    def start_ticks(self) -> int:
        """The process's."""
        return self.process.start_ticks


def sockets(process: Process) -> list[Socket]:
    """The TCP sockets in the process's descriptors that belong to its network namespace, by fd.

    A process that has ended has none. Raises HostError where this user may not look.
    """
    found, unread = sockets_of([process])
    if unread:
        raise HostError(unread[0][1])
    return found


def sockets_of(found: Iterable[Process]) -> tuple[list[Socket], list[tuple[Process, str]]]:
    """The sockets of many processes, and those that could not be read, with the reason.

    Each network namespace is asked once; a socket that several processes share comes once for each.
    """
    held: list[tuple[Process, int, dict[int, int]]] = []
    wanted: defaultdict[int, set[int]] = defaultdict(set)
    unread: list[tuple[Process, str]] = []
    in_kernel: dict[int, tuple[int, dict[int, int]]] | None = None
    for process in found:
        try:
            held.append((process, process.netns, socket_descriptors(process)))
        except HostError as error:
            in_kernel = _in_kernel() if in_kernel is None else in_kernel
            if process.pid not in in_kernel:
                unread.append((process, str(error)))
                continue
            held.append((process, *in_kernel[process.pid]))
        wanted[held[-1][1]] |= held[-1][2].keys()
    tables: dict[int, dict[int, TcpSocket]] = {}
    joined: list[Socket] = []
    for process, inside_of, descriptors in held:
        try:
            if descriptors and inside_of not in tables:
                tables[inside_of] = _tcp_sockets(process, inside_of, wanted[inside_of])
        except HostError as error:
            unread.append((process, str(error)))
            continue
        except (FileNotFoundError, ProcessLookupError):  # it has ended
            continue
        table = tables.get(inside_of, {})
        joined += [
            _join(process, inside_of, fd, table[inode])
            for inode, fd in sorted(descriptors.items(), key=lambda item: item[1])
            if inode in table
        ]
    return joined, unread


def _in_kernel() -> dict[int, tuple[int, dict[int, int]]]:
    """Return what the kernel says that processes hold, for those that we may not look into.

    By pid, the inode of the network namespace of its sockets (of the first, should they be in
    several), and each socket's inode and lowest descriptor. Nothing where the kernel isn't asked.
    """
    found: dict[int, tuple[int, dict[int, int]]] = {}
    with suppress(HostError, UnknownError):  # who can't be looked into is reported
        for each in sorted(kernel_sockets().held(), key=lambda each: each.fd):
            first, descriptors = found.setdefault(each.pid, (each.netns, {}))
            if each.netns == first:
                descriptors.setdefault(each.inode, each.fd)
    return found


def socket_descriptors(process: Process) -> dict[int, int]:
    """The inode of each socket that the process holds, and its lowest descriptor for it.

    Nothing for a process that has ended. Raises HostError where this user may not look.
    """
    folder = f"{PROC}/{process.pid}/fd"
    found: dict[int, int] = {}
    try:
        for name in sorted(os.listdir(folder), key=int):
            try:
                link = os.readlink(f"{folder}/{name}")
            except FileNotFoundError:  # closed meanwhile
                continue
            if link.startswith("socket:["):
                found.setdefault(int(link[8:-1]), int(name))
    except PermissionError as error:
        raise HostError(
            f"The descriptors of process {process.pid} ({process.name}) of user {process.uid} can't"
            f" be read: {privileges.reason_for_refusal()}."
        ) from error
    except (FileNotFoundError, ProcessLookupError):
        return {}
    # What was read may be another process's that got the pid.
    return found if process.is_running() else {}


def holders(inodes: Set[int], candidates: Iterable[Process]) -> dict[int, tuple[Process, int]]:
    """One of the candidates that holds each of the sockets, and its descriptor for it.

    A socket that none of them holds is left out; so is one of a process that may not be read.
    """
    found = {}
    for process in candidates:
        try:
            descriptors = socket_descriptors(process)
        except HostError:
            continue
        for inode in inodes & descriptors.keys():
            found[inode] = process, descriptors[inode]
    return found


def _tcp_sockets(process: Process, inode: int, inodes: Set[int]) -> dict[int, TcpSocket]:
    """Return what sock_diag tells of these of the TCP sockets in that network namespace, the
    process's.
    """
    if inode != process.netns:  # which we may not see
        with inside(inode):
            diag = open_diag()
    else:
        diag = diag_socket(process)
    with diag:
        return tcp_sockets(diag, inodes)


def diag_socket(process: Process) -> socket.socket:
    """A sock_diag socket in the process's network namespace; this thread stays in its own."""
    try:
        with (
            open(PROC / "thread-self/ns/net") as home,
            open(PROC / str(process.pid) / "ns/net") as there,
        ):
            inode = os.fstat(there.fileno()).st_ino
            if inode != process.netns:
                raise ProcessLookupError(f"process {process.pid} is no longer the intended process")
            if os.fstat(home.fileno()).st_ino == inode:
                return open_diag()
            netns.setns(there.fileno())
            try:
                return open_diag()
            finally:
                netns.setns(home.fileno())
    except PermissionError as error:
        if error.filename is not None:  # opening, not entering
            why = privileges.reason_for_refusal()
        else:
            why = "this needs CAP_SYS_ADMIN in both user namespaces; run it as root (sudo)"
        raise HostError(
            f"The network namespace of process {process.pid} ({process.name}) can't be entered to"
            f" look at its sockets: {why}."
        ) from error


def _join(process: Process, inside_of: int, fd: int, told: TcpSocket) -> Socket:
    family = 6 if ":" in told.remote[0] else 4
    return Socket(process=process, fd=fd, netns=inside_of, family=family, **vars(told))
