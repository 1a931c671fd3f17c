# SPDX-License-Identifier: BSD-2-Clause
"""Generic netlink on a plain socket: requests, dumps, notifications, the kernel's own words.

pyroute2's generic netlink sockets can't serve here. They are one per thread, so that what one
thread opened another can't read; after one overrun every later call fails; a dump that ends in
an error without a text looks like success; and a request takes twenty times as long, which
tells where ten thousand sockets are tagged.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
import threading
from collections.abc import Iterator, Mapping

from mltcp_tools.kernel.host.closing import Closing

_NETLINK_GENERIC = 16
_SOL_NETLINK = 270
_ADD_MEMBERSHIP = 1
_BROADCAST_ERROR = 4
_CAP_ACK = 10
_EXT_ACK = 11
_GET_STRICT_CHK = 12
_SO_RCVBUFFORCE = 33
_SO_MEMINFO = 55

_NLMSG_ERROR = 2
_NLMSG_DONE = 3
_F_REQUEST = 0x1
_F_ACK = 0x4
_F_DUMP = 0x300
_F_CAPPED = 0x100
_F_ACK_TLVS = 0x200
_ERROR_TEXT = 1  # NLMSGERR_ATTR_MSG

_CTRL_ID = 16
_CTRL_GETFAMILY = 3
_CTRL_FAMILY_ID = 1
_CTRL_FAMILY_NAME = 2
_CTRL_VERSION = 3
_CTRL_GROUPS = 7
_CTRL_GROUP_NAME = 1
_CTRL_GROUP_ID = 2

_TYPE_MASK = 0x3FFF  # without the flags for nesting and byte order
_BUFFER = 1 << 16  # the kernel fills at most 32 KiB for one read of a dump

_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence number, port
_GENERIC = struct.Struct("=BBH")  # command, version, reserved
_ATTRIBUTE = struct.Struct("=HH")  # length, type
_MEMINFO = struct.Struct("=9I")  # enum sk_meminfo_vars; the last counts drops


class NetlinkError(OSError):
    """The kernel refused a request. text: why, in the kernel's words; empty when it gave none."""

    def __init__(self, code: int, text: str = "") -> None:
        super().__init__(code, text or os.strerror(code))
        self.text = text


def _aligned(length: int) -> int:
    return (length + 3) & ~3


def encode(attributes: Mapping[int, bytes]) -> bytes:
    """The bytes of attributes, by their types, each padded to four bytes."""
    parts = []
    for kind, value in attributes.items():
        length = _ATTRIBUTE.size + len(value)
        parts.append(_ATTRIBUTE.pack(length, kind) + value + bytes(_aligned(length) - length))
    return b"".join(parts)


def decode(data: bytes) -> dict[int, bytes]:
    """Attributes by type; of several of one type the last. ValueError when they are cut short."""
    found = {}
    offset = 0
    while offset + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, offset)
        if not _ATTRIBUTE.size <= length <= len(data) - offset:
            raise ValueError(f"attribute of {length} bytes where {len(data) - offset} are left")
        found[kind & _TYPE_MASK] = data[offset + _ATTRIBUTE.size : offset + length]
        offset += _aligned(length)
    return found


def text(value: bytes) -> str:
    """A string attribute, without the zero that ends it."""
    return value.partition(b"\0")[0].decode(errors="replace")


def number(value: bytes) -> int:
    """An unsigned integer attribute, in the host's byte order as generic netlink has it."""
    return int.from_bytes(value, "little")


def messages(data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """(type, flags, sequence number, payload) of each message in what one read returned."""
    offset = 0
    while offset + _HEADER.size <= len(data):
        length, kind, flags, sequence, _port = _HEADER.unpack_from(data, offset)
        if not _HEADER.size <= length <= len(data) - offset:
            raise ValueError(f"message of {length} bytes where {len(data) - offset} are left")
        yield kind, flags, sequence, data[offset + _HEADER.size : offset + length]
        offset += _aligned(length)


def refusal(kind: int, flags: int, payload: bytes) -> NetlinkError | None:
    """The error that an acknowledgement or the end of a dump carries; None without one."""
    (code,) = struct.unpack_from("=i", payload)
    if not code:
        return None
    told = b""
    if flags & _F_ACK_TLVS:
        start = 4
        if kind == _NLMSG_ERROR:  # which repeats the request, or its header alone
            (length,) = struct.unpack_from("=I", payload, start)
            start += _HEADER.size if flags & _F_CAPPED else _aligned(length)
        told = decode(payload[start:]).get(_ERROR_TEXT, b"")
    return NetlinkError(-code, text(told))


class GenericSocket(Closing):
    """A socket of this network namespace that speaks with one generic netlink family.

    Several threads may share it: their requests take turns.
    """

    def __init__(self, family: str) -> None:
        """Raises NetlinkError ENOENT when the kernel has no such family."""
        self._lock = threading.Lock()
        self._sequence = 0
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_GENERIC)
        try:
            for option in (_EXT_ACK, _CAP_ACK, _GET_STRICT_CHK):
                self._socket.setsockopt(_SOL_NETLINK, option, 1)
            self._socket.bind((0, 0))
            name = {_CTRL_FAMILY_NAME: family.encode() + b"\0"}
            self.id, self.version = _CTRL_ID, 1
            found = self.request(_CTRL_GETFAMILY, name)
            self.id = number(found[_CTRL_FAMILY_ID])
            self.version = number(found[_CTRL_VERSION])
            groups = [decode(group) for group in decode(found.get(_CTRL_GROUPS, b"")).values()]
            self._groups = {
                text(group[_CTRL_GROUP_NAME]): number(group[_CTRL_GROUP_ID]) for group in groups
            }
        except BaseException:
            self.close()
            raise

    def request(self, command: int, attributes: Mapping[int, bytes]) -> dict[int, bytes]:
        """Do one thing; the attributes of the answer, none when the kernel only agrees."""
        answers = self._exchange(command, _F_REQUEST | _F_ACK, attributes)
        return decode(answers[-1] if answers else b"")

    def dump(self, command: int, attributes: Mapping[int, bytes] | None = None) -> list[bytes]:
        """The attributes, still encoded, of each message of a dump."""
        return self._exchange(command, _F_REQUEST | _F_DUMP, attributes or {})

    def _exchange(self, command: int, flags: int, attributes: Mapping[int, bytes]) -> list[bytes]:
        """Ask, and read up to the acknowledgement or the end of the dump."""
        found: list[bytes] = []
        with self._lock:
            sequence = self._send(command, flags, attributes)
            while True:
                for kind, told, about, payload in messages(self._socket.recv(_BUFFER)):
                    if about != sequence:
                        continue  # the answer to a request that a signal cut off
                    if kind in (_NLMSG_ERROR, _NLMSG_DONE):
                        if error := refusal(kind, told, payload):
                            raise error
                        return found
                    found.append(payload[_GENERIC.size :])

    def _send(self, command: int, flags: int, attributes: Mapping[int, bytes]) -> int:
        self._sequence += 1
        body = _GENERIC.pack(command, self.version, 0) + encode(attributes)
        header = _HEADER.pack(_HEADER.size + len(body), self.id, flags, self._sequence, 0)
        self._socket.send(header + body)
        return self._sequence

    def join(self, group: str, buffer_bytes: int) -> None:
        """Take part in a multicast group, with room for that many bytes of unread notifications.

        The kernel accounts each notification with about 1 kB.
        """
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, buffer_bytes)
        except PermissionError:  # then the system's limit holds
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        # Without this the sender isn't told when we had no room, and can't count it.
        self._socket.setsockopt(_SOL_NETLINK, _BROADCAST_ERROR, 1)
        self._socket.setsockopt(_SOL_NETLINK, _ADD_MEMBERSHIP, self._groups[group])

    def notifications(self, timeout_s: float) -> list[tuple[int, bytes]]:
        """Wait up to timeout_s seconds for the first; (command, encoded attributes) of all."""
        found: list[tuple[int, bytes]] = []
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        poll.poll(round(timeout_s * 1000))
        while True:
            try:
                data = self._socket.recv(_BUFFER, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return found
            except OSError as error:
                if error.errno != errno.ENOBUFS:  # which says once that dropped() has grown
                    raise
                continue
            for kind, _flags, _about, payload in messages(data):
                if kind == self.id:
                    found.append((payload[0], payload[_GENERIC.size :]))

    def dropped(self) -> int:
        """Notifications that found this socket's buffer full, since it was opened."""
        memory = self._socket.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size)
        (*_, drops) = _MEMINFO.unpack(memory)
        return int(drops)

    def close(self) -> None:
        """Close the socket. Closing twice is fine."""
        self._socket.close()
