"""The TCP sockets of a process: its descriptors joined with what sock_diag knows of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mltcp_tools.attach.processes import Process


@dataclass(frozen=True)
class Socket:
    """One TCP socket of one process, as the kernel saw it when asked.

    fd: the (lowest) descriptor by which the process holds it. inode: of the socket file. cookie:
    the kernel's number for the socket, never given twice. netns: inode of its network namespace.
    family: 4 or 6; a v4-mapped connection is one of IPv4. local, remote: address and port; the
    remote one of a listening socket is all zero. state: name of the TCP state, as in `ss`.
    bytes_sent: with what was retransmitted. Both counts are since the connection began.
    """

    process: Process
    fd: int
    inode: int
    cookie: int
    netns: int
    family: int
    local: tuple[str, int]
    remote: tuple[str, int]
    state: str
    congestion_control: str
    bytes_sent: int
    bytes_received: int


def sockets(process: Process) -> list[Socket]:
    """The TCP sockets in the process's descriptors that belong to its network namespace, by fd.

    A process that has ended has none. Raises HostError where this user may not look.
    """
    raise NotImplementedError


def sockets_of(found: Iterable[Process]) -> tuple[list[Socket], list[tuple[Process, str]]]:
    """The sockets of many processes, and those that could not be read, with the reason.

    Each network namespace is asked once; a socket that several processes share comes once for each.
    """
    raise NotImplementedError
