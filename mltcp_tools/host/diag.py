"""Asks the kernel's sock_diag for TCP sockets, and decodes none but those that are wanted.

pyroute2 decodes every message it gets, a tenth of a millisecond each: with a thousand sockets of
others on a host, following would take longer than it may. So the wanted ones are picked out of what
the kernel sends by their inode, and pyroute2 decodes those.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import struct
from collections.abc import Collection, Iterator, Set
from dataclasses import dataclass
from typing import Any

from pyroute2.netlink import NETLINK_SOCK_DIAG
from pyroute2.netlink.diag import inet_diag_msg

from mltcp_tools.errors import HostError
from mltcp_tools.host.tcpstates import tcp_state

_SOCK_DIAG_BY_FAMILY = 20
_DONE, _ERROR = 3, 2
_REQUEST_DUMP = 0x301
_HEADER = struct.Struct("=IHHII")
"""struct nlmsghdr (linux/netlink.h)."""

_REQUEST = struct.Struct("=BBBxI48x")
"""struct inet_diag_req_v2 (linux/inet_diag.h), of any addresses and ports."""

_INODE = struct.Struct("=I")
_INODE_AT = _HEADER.size + 68
_MESSAGE_SIZE = _HEADER.size + 72
"""struct inet_diag_msg, whose last field is the inode."""

_TOLD = 1 << 1 | 1 << 3
"""What to tell of each socket: INET_DIAG_INFO and INET_DIAG_CONG."""

_STATES = 0xFFF & ~(1 << 3 | 1 << 6)
"""All but those in which nobody has a descriptor of the socket: SYN-RECV and TIME-WAIT."""

_BUFFER = 1 << 17
"""Of one answer; the kernel fills 32 KiB at most."""


@dataclass(frozen=True, kw_only=True)
class TcpSocket:
    """One TCP socket, as the kernel saw it when asked.

    inode: of the socket file, 0 where no process has it any more. cookie: the kernel's number for
    the socket, never given twice. local, remote: address and port, those of IPv4 where the
    connection is a v4-mapped one; the remote one of a listening socket is all zero. state: name of
    the TCP state, such as established, listen, close-wait.
    """

    inode: int
    cookie: int
    local: tuple[str, int]
    remote: tuple[str, int]
    state: str
    congestion_control: str


def open_diag() -> socket.socket:
    """A sock_diag socket; it asks for the network namespace that this thread is in now."""
    return socket.socket(
        socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_SOCK_DIAG
    )


def tcp_sockets(diag: socket.socket, inodes: Set[int]) -> dict[int, Any]:
    """What sock_diag tells of the TCP sockets with these inodes, by inode.

    The values are pyroute2's inet_diag_msg. HostError where the kernel has no sock_diag for TCP.
    """
    found = {}
    for data in _dump(diag):
        (inode,) = _INODE.unpack_from(data, _INODE_AT)
        if inode in inodes:
            message = inet_diag_msg(data)
            message.decode()
            found[inode] = message
    return found


def tcp_sockets_running(diag: socket.socket, names: Collection[str]) -> list[Any]:
    """What sock_diag tells of the TCP sockets that run these congestion controls.

    Listening ones, and connections that no process has any more, are among them; a socket that is
    neither bound nor connected is not: sock_diag doesn't know of it.
    """
    found = []
    wanted = [name.encode() + b"\0" for name in names]
    for data in _dump(diag):
        if any(name in data for name in wanted):
            message = inet_diag_msg(data)
            message.decode()
            if message.get_attr("INET_DIAG_CONG") in names:
                found.append(message)
    return found


def told(message: Any) -> dict[str, Any]:
    """The fields of TcpSocket that an inet_diag_msg has."""
    return {
        "inode": message["idiag_inode"],
        "cookie": message["idiag_cookie"],
        "local": (_address(message["idiag_src"]), message["idiag_sport"]),
        "remote": (_address(message["idiag_dst"]), message["idiag_dport"]),
        "state": tcp_state(message["idiag_state"]),
        "congestion_control": message.get_attr("INET_DIAG_CONG") or "",
    }


def _address(text: str) -> str:
    address = ipaddress.ip_address(text)
    return str(getattr(address, "ipv4_mapped", None) or address)


def _dump(diag: socket.socket) -> Iterator[bytes]:
    """The message of each TCP socket, IPv4's and IPv6's."""
    for family in (socket.AF_INET, socket.AF_INET6):
        request = _REQUEST.pack(family, socket.IPPROTO_TCP, _TOLD, _STATES)
        header = _HEADER.pack(
            _HEADER.size + len(request), _SOCK_DIAG_BY_FAMILY, _REQUEST_DUMP, family, 0
        )
        diag.send(header + request)
        yield from _messages(diag)


def _messages(diag: socket.socket) -> Iterator[bytes]:
    """The messages of the answer."""
    while True:
        data = diag.recv(_BUFFER)
        offset = 0
        while offset < len(data):
            size, kind, *_ = _HEADER.unpack_from(data, offset)
            if kind in (_DONE, _ERROR):
                _check(data, offset)
                return
            if size < _MESSAGE_SIZE:
                raise _refused(errno.EPROTO)
            yield data[offset : offset + size]
            offset += (size + 3) & ~3


def _check(data: bytes, offset: int) -> None:
    """Raise for an answer that ends with an error."""
    (code,) = struct.unpack_from("=i", data, offset + _HEADER.size)
    if code:
        raise _refused(-code)


def _refused(number: int) -> HostError:
    return HostError(
        f"The kernel doesn't list its TCP sockets ({os.strerror(number)}); it needs sock_diag"
        " (CONFIG_INET_DIAG; modprobe tcp_diag)."
    )
