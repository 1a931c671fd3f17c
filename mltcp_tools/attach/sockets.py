"""The TCP sockets of a process: its descriptors joined with what sock_diag knows of them."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections import defaultdict
from collections.abc import Iterable, Set
from dataclasses import dataclass
from typing import Any

from pyroute2 import netns

from mltcp_tools.attach import privileges
from mltcp_tools.attach.processes import PROC, Process
from mltcp_tools.errors import HostError
from mltcp_tools.host.diag import TcpSocket, open_diag, tcp_sockets, told

CAN_SEND = ("established", "close-wait")
"""States of a connection over which the process can still send."""


@dataclass(frozen=True, kw_only=True)
class Socket(TcpSocket):
    """One TCP socket of one process.

    fd: the (lowest) descriptor by which the process holds it. netns: inode of its network
    namespace. family: 4 or 6; a v4-mapped connection is one of IPv4. bytes_sent: each byte once,
    however often it was retransmitted. Both counts are since the connection began.
    """

    process: Process
    fd: int
    netns: int
    family: int
    bytes_sent: int
    bytes_received: int


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
    held: list[tuple[Process, dict[int, int]]] = []
    wanted: defaultdict[int, set[int]] = defaultdict(set)
    unread: list[tuple[Process, str]] = []
    for process in found:
        try:
            held.append((process, socket_descriptors(process)))
        except HostError as error:
            unread.append((process, str(error)))
        else:
            wanted[process.netns] |= held[-1][1].keys()
    tables: dict[int, dict[int, Any]] = {}
    joined: list[Socket] = []
    for process, descriptors in held:
        try:
            if descriptors and process.netns not in tables:
                tables[process.netns] = _tcp_sockets(process, wanted[process.netns])
        except HostError as error:
            unread.append((process, str(error)))
            continue
        except (FileNotFoundError, ProcessLookupError):  # it has ended
            continue
        table = tables.get(process.netns, {})
        joined += [
            _join(process, fd, table[inode])
            for inode, fd in sorted(descriptors.items(), key=lambda item: item[1])
            if inode in table
        ]
    return joined, unread


def socket_descriptors(process: Process) -> dict[int, int]:
    """The inode of each socket that the process holds, and its lowest descriptor for it.

    Nothing for a process that has ended. Raises HostError where this user may not look.
    """
    folder = PROC / str(process.pid) / "fd"
    found: dict[int, int] = {}
    try:
        for name in sorted(os.listdir(folder), key=int):
            try:
                link = os.readlink(folder / name)
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


def _tcp_sockets(process: Process, inodes: Set[int]) -> dict[int, Any]:
    """What sock_diag tells of these of the TCP sockets in the process's network namespace."""
    with _diag_socket(process) as diag:
        return tcp_sockets(diag, inodes)


def _diag_socket(process: Process) -> socket.socket:
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


def _join(process: Process, fd: int, message: Any) -> Socket:
    info = message.get_attr("INET_DIAG_INFO") or {}
    fields = told(message)
    return Socket(
        process=process,
        fd=fd,
        netns=process.netns,
        family=ipaddress.ip_address(fields["remote"][0]).version,
        bytes_sent=info.get("tcpi_bytes_sent", 0) - info.get("tcpi_bytes_retrans", 0),
        bytes_received=info.get("tcpi_bytes_received", 0),
        **fields,
    )
