# SPDX-License-Identifier: BSD-2-Clause
"""The protocol between client and server on every flow.

    client -> server   Hello                        once
    server -> client   Welcome                      once: accepted, or the reason why not
    client -> server   BurstHeader, payload         per burst
    server -> client   payload, Confirmation        per burst

A burst's header and confirmation are counted among its bytes: a flow that sends N bytes in a burst
puts exactly N bytes on the wire, header included, so that the congestion control under test sees
bursts of the size that was asked for. Numbers are big-endian. Everything that comes from the other
side passes through `unpack`, which raises ProtocolError and nothing else.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import Any, ClassVar

from mltcp_tools.base.errors import MltcpError
from mltcp_tools.lab.emulator.job import DIRECTIONS, MAX_BYTES, MIN_SHARE

VERSION = 4

_HELLO_MAGIC = b"MLTCPemu"
_WELCOME_MAGIC = b"MLTCPsrv"
_BURST_MAGIC = b"MLbu"
_CONFIRMATION_MAGIC = b"MLok"
_CC_NAME = re.compile(rb"[A-Za-z0-9_]{0,15}")


class ProtocolError(MltcpError):
    """The other side sent something that doesn't belong to this protocol."""


def _fields(layout: struct.Struct, data: bytes, magic: bytes) -> tuple[Any, ...]:
    if len(data) != layout.size:
        raise ProtocolError(f"a record of {len(data)} bytes instead of {layout.size}")
    fields = layout.unpack(data)
    if fields[0] != magic:
        raise ProtocolError("it doesn't speak this protocol")
    return fields[1:]


@dataclass(frozen=True)
class Hello:
    """Opens a flow.

    `cc` is the congestion control the server shall use where it sends; empty for its default.
    `chunk`: bytes that each end sends at a time; 0 for all.
    """

    LAYOUT: ClassVar[struct.Struct] = struct.Struct("!8sBB16sI")

    direction: str
    cc: str
    chunk: int = 0

    def pack(self) -> bytes:
        return self.LAYOUT.pack(
            _HELLO_MAGIC,
            VERSION,
            DIRECTIONS.index(self.direction),
            self.cc.encode(),
            self.chunk,
        )

    @classmethod
    def unpack(cls, data: bytes) -> Hello:
        # The version comes right behind the magic in every version of this record.
        version = data[len(_HELLO_MAGIC) : len(_HELLO_MAGIC) + 1]
        if data.startswith(_HELLO_MAGIC) and version not in (b"", bytes([VERSION])):
            raise ProtocolError(
                f"it speaks version {version[0]} of the protocol and this side version {VERSION}; "
                "run the same mltcp release on both"
            )
        _, direction, cc, chunk = _fields(cls.LAYOUT, data, _HELLO_MAGIC)
        name = cc.rstrip(b"\0")
        if direction >= len(DIRECTIONS):
            raise ProtocolError("it asked for an impossible direction")
        if _CC_NAME.fullmatch(name) is None:
            raise ProtocolError("it asked for an impossible congestion control")
        return cls(DIRECTIONS[direction], name.decode(), chunk)


@dataclass(frozen=True)
class Welcome:
    """Answers Hello. `text`: why the server refuses."""

    TEXT_BYTES: ClassVar[int] = 255
    LAYOUT: ClassVar[struct.Struct] = struct.Struct(f"!8sB{TEXT_BYTES}s")

    accepted: bool
    text: str = ""

    def pack(self) -> bytes:
        text = self.text.encode()[: self.TEXT_BYTES]
        return self.LAYOUT.pack(_WELCOME_MAGIC, not self.accepted, text)

    @classmethod
    def check_start(cls, data: bytes) -> None:
        """Raise ProtocolError as soon as the first bytes show that this is something else."""
        if not _WELCOME_MAGIC.startswith(data[: len(_WELCOME_MAGIC)]):
            raise ProtocolError("it doesn't speak this protocol")

    @classmethod
    def unpack(cls, data: bytes) -> Welcome:
        status, text = _fields(cls.LAYOUT, data, _WELCOME_MAGIC)
        decoded = text.rstrip(b"\0").decode(errors="replace")
        return cls(status == 0, "".join(c for c in decoded if c.isprintable()))


@dataclass(frozen=True)
class BurstHeader:
    """Opens burst `number` of a flow: `up` bytes client to server (this record among them) and
    `down` bytes server to client (the confirmation among them); 0 where only that goes.
    """

    LAYOUT: ClassVar[struct.Struct] = struct.Struct("!4sIQQ")

    number: int
    up: int
    down: int

    def pack(self) -> bytes:
        return self.LAYOUT.pack(_BURST_MAGIC, self.number & 0xFFFFFFFF, self.up, self.down)

    @classmethod
    def unpack(cls, data: bytes) -> BurstHeader:
        number, up, down = _fields(cls.LAYOUT, data, _BURST_MAGIC)
        for size in (up, down or MIN_SHARE):
            if not MIN_SHARE <= size <= MAX_BYTES:
                raise ProtocolError(f"it announced an impossible burst of {size} bytes")
        return cls(number, up, down)

    def payload_up(self) -> int:
        """Bytes that follow the header."""
        return self.up - self.LAYOUT.size

    def payload_down(self) -> int:
        """Bytes that precede the confirmation."""
        return max(0, self.down - Confirmation.LAYOUT.size)


@dataclass(frozen=True)
class Confirmation:
    """Ends burst `number`: the server has received `received` bytes (header included) and has
    handed over all of its own. `retransmits` is the total of the server's socket so far.
    """

    LAYOUT: ClassVar[struct.Struct] = struct.Struct("!4sIQI")

    number: int
    received: int
    retransmits: int

    def pack(self) -> bytes:
        return self.LAYOUT.pack(
            _CONFIRMATION_MAGIC, self.number & 0xFFFFFFFF, self.received, self.retransmits
        )

    @classmethod
    def unpack(cls, data: bytes) -> Confirmation:
        return cls(*_fields(cls.LAYOUT, data, _CONFIRMATION_MAGIC))
