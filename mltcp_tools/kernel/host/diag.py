# SPDX-License-Identifier: BSD-2-Clause
"""Asks the kernel's sock_diag for TCP sockets, and decodes none but those that are wanted.

pyroute2 takes a tenth of a millisecond for each message, and decodes all that come: with ten
thousand sockets that is a second each time one looks. So this decodes what it needs itself.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import struct
from collections.abc import Collection, Iterable, Iterator, Set
from dataclasses import dataclass

from pyroute2.netlink import NETLINK_SOCK_DIAG

from mltcp_tools.base.errors import HostError
from mltcp_tools.kernel.host.tcpstates import tcp_state

_SOCK_DIAG_BY_FAMILY = 20
_DONE, _ERROR = 3, 2
_REQUEST_DUMP = 0x301
_HEADER = struct.Struct("=IHHII")
"""struct nlmsghdr (linux/netlink.h)."""

_REQUEST = struct.Struct("=BBBxI48x")
"""struct inet_diag_req_v2 (linux/inet_diag.h), of any addresses and ports."""

_REQUEST_ONE = 0x1
_ONE = struct.Struct("=BBBxI4s16s16sIQ")
"""The same of one socket: ports and addresses as on the wire, its interface, and the cookie."""

_COOKIE = struct.Struct("=Q")
_COOKIE_AT = _HEADER.size + 44
_AT_ONCE = 64
"""Sockets asked for in one request: their answers fit into a netlink socket's usual buffer."""

_INFO, _CONG = 2, 4
"""INET_DIAG_INFO, whose content is struct tcp_info (linux/tcp.h), and INET_DIAG_CONG."""

_PROGRESS = struct.Struct("=52xII40xI16xQQ")
"""In it: milliseconds since data and since an ACK came, segments sent again, bytes acknowledged,
bytes received."""

_INODE = struct.Struct("=I")
_INODE_AT = _HEADER.size + 68
_MESSAGE_SIZE = _HEADER.size + 72
"""struct inet_diag_msg, whose last field is the inode."""

_MESSAGE = struct.Struct("=BB2x2s2s16s16sIQ16xI")
"""The parts of struct inet_diag_msg (linux/inet_diag.h) that matter: family, state, ports and
addresses as on the wire, interface, cookie, inode."""

_ATTRIBUTE = struct.Struct("=HH")
"""struct nlattr: its length with this head, and its type."""

_BYTES_RECEIVED, _BYTES_SENT, _BYTES_RETRANS = 128, 200, 208
"""The places of these counters in struct tcp_info (linux/tcp.h)."""

_V4_MAPPED = bytes(10) + b"\xff\xff"

_TOLD = 1 << 1 | 1 << 3
"""The kernel is to tell INET_DIAG_INFO and INET_DIAG_CONG of each socket."""

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
    the TCP state, such as established, listen, close-wait. bytes_sent, bytes_received: since the
    connection began, each byte once, however often it was sent again; bytes_again: those besides.
    interface: index of the one that it is bound to, by its program, a VRF, or the scope of a
    link-local address; 0 for none.
    """

    inode: int
    cookie: int
    local: tuple[str, int]
    remote: tuple[str, int]
    state: str
    congestion_control: str
    bytes_sent: int = 0
    bytes_received: int = 0
    bytes_again: int = 0
    interface: int = 0


@dataclass(frozen=True)
class SocketProgress:
    """The progress of a connection: bytes, and segments sent again, since it began.

    acknowledged, received: each byte once; bytes_again: those sent again. quiet_s: seconds since an
    ACK or data arrived, in steps of the kernel's clock (1 to 10 ms).
    """

    acknowledged: int
    received: int
    bytes_again: int
    retransmits: int
    quiet_s: float


def open_diag() -> socket.socket:
    """A sock_diag socket; it asks for the network namespace that this thread is in now."""
    return socket.socket(
        socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_SOCK_DIAG
    )


def tcp_sockets(diag: socket.socket, inodes: Set[int]) -> dict[int, TcpSocket]:
    """Return sock_diag's answers on the TCP sockets with these inodes, by inode.

    HostError where the kernel has no sock_diag for TCP.
    """
    found = {}
    for data in _dump(diag):
        (inode,) = _INODE.unpack_from(data, _INODE_AT)
        if inode in inodes:
            found[inode] = _decode(data)
    return found


def tcp_sockets_running(diag: socket.socket, names: Collection[str]) -> list[TcpSocket]:
    """Return sock_diag's answers on the TCP sockets that run these congestion controls.

    Listening ones, and connections that no process has any more, are among them; a socket that is
    neither bound nor connected is not: sock_diag doesn't know of it.
    """
    wanted = [name.encode() + b"\0" for name in names]
    found = (_decode(data) for data in _dump(diag) if any(name in data for name in wanted))
    return [each for each in found if each.congestion_control in names]


def tcp_sockets_to(diag: socket.socket, ends: Set[tuple[str, int]]) -> list[TcpSocket]:
    """Return sock_diag's answers on the TCP sockets whose peer is one of these ends."""
    return [each for data in _dump(diag) if (each := _decode(data)).remote in ends]


def _decode(data: bytes) -> TcpSocket:
    """The socket of a message."""
    family, state, local_port, remote_port, local, remote, interface, cookie, inode = (
        _MESSAGE.unpack_from(data, _HEADER.size)
    )
    name, sent, retransmitted, received = "", 0, 0, 0
    for kind, begin, size in _attributes(data):
        if kind == _CONG:
            name = data[begin : begin + size].partition(b"\0")[0].decode(errors="replace")
        elif kind == _INFO:
            received = _counter(data, begin, size, _BYTES_RECEIVED)
            sent = _counter(data, begin, size, _BYTES_SENT)
            retransmitted = _counter(data, begin, size, _BYTES_RETRANS)
    return TcpSocket(
        inode=inode,
        cookie=cookie,
        local=(_address(family, local), _port(local_port)),
        remote=(_address(family, remote), _port(remote_port)),
        state=tcp_state(state),
        congestion_control=name,
        bytes_sent=sent - retransmitted,
        bytes_received=received,
        bytes_again=retransmitted,
        interface=interface,
    )


def progress(diag: socket.socket, wanted: Iterable[TcpSocket]) -> dict[int, SocketProgress]:
    """Return the progress of these connections by cookie, without those that have closed.

    Each is looked up by its addresses, which takes microseconds however many sockets a host has.
    """
    found = {}
    rest = list(wanted)
    while rest:
        some, rest = rest[:_AT_ONCE], rest[_AT_ONCE:]
        diag.send(b"".join(_request(number, each) for number, each in enumerate(some)))
        for _ in some:
            data = diag.recv(_BUFFER)
            _, kind, *_ = _HEADER.unpack_from(data)
            if kind != _ERROR and len(data) >= _MESSAGE_SIZE and (told := _progress(data)):
                found[_COOKIE.unpack_from(data, _COOKIE_AT)[0]] = told
    return found


def _request(number: int, sock: TcpSocket) -> bytes:
    local, remote = (ipaddress.ip_address(each[0]).packed for each in (sock.local, sock.remote))
    family = socket.AF_INET if len(local) == 4 else socket.AF_INET6
    ports = sock.local[1].to_bytes(2, "big") + sock.remote[1].to_bytes(2, "big")
    ends = (ports, local, remote, sock.interface, sock.cookie)
    body = _ONE.pack(family, socket.IPPROTO_TCP, 1 << _INFO - 1, _STATES, *ends)
    size = _HEADER.size + len(body)
    return _HEADER.pack(size, _SOCK_DIAG_BY_FAMILY, _REQUEST_ONE, number, 0) + body


def _progress(data: bytes) -> SocketProgress | None:
    """Return the progress that an answer tells; None for one without it, as of a socket that isn't
    connected.
    """
    for kind, begin, size in _attributes(data):
        if kind == _INFO and size >= _PROGRESS.size:
            since_data, since_ack, again, acked, received = _PROGRESS.unpack_from(data, begin)
            bytes_again = _counter(data, begin, size, _BYTES_RETRANS)
            quiet_s = min(since_data, since_ack) / 1000
            return SocketProgress(acked, received, bytes_again, again, quiet_s)
    return None


def _attributes(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield the type of each attribute of a message, and where its content begins and how long
    it is.
    """
    at = _MESSAGE_SIZE
    while at + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, at)
        if length < _ATTRIBUTE.size or at + length > len(data):
            raise _refused(errno.EPROTO)
        yield kind, at + _ATTRIBUTE.size, length - _ATTRIBUTE.size
        at += (length + 3) & ~3


def _counter(data: bytes, begin: int, size: int, offset: int) -> int:
    """A counter of struct tcp_info; 0 where an older kernel's is shorter."""
    if offset + _COOKIE.size > size:
        return 0
    value: int = _COOKIE.unpack_from(data, begin + offset)[0]
    return value


def _port(value: bytes) -> int:
    return int.from_bytes(value, "big")


def _address(family: int, packed: bytes) -> str:
    """IPv4's where the connection is a v4-mapped one."""
    if family == socket.AF_INET:
        return socket.inet_ntop(socket.AF_INET, packed[:4])
    if packed.startswith(_V4_MAPPED):
        return socket.inet_ntop(socket.AF_INET, packed[12:])
    return socket.inet_ntop(socket.AF_INET6, packed)


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
