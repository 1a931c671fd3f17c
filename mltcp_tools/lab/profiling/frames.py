# SPDX-License-Identifier: BSD-2-Clause
"""TCP segments in the frames of a packet capture."""

from __future__ import annotations

import struct
from typing import NamedTuple

_ETHERNET, _SLL, _SLL2 = 1, 113, 276
_NULL = (0, 108)
_RAW = (12, 14, 101, 228, 229)
LINK_TYPES = frozenset((_ETHERNET, _SLL, _SLL2, *_NULL, *_RAW))
"""Link types that are understood: Ethernet, Linux cooked 1 and 2, BSD loopback, raw IP."""

_IPV4, _IPV6 = 0x0800, 0x86DD
_VLAN = frozenset((0x8100, 0x88A8, 0x9100))
_TCP = 6
_EXTENSIONS = frozenset((0, 43, 60))  # hop-by-hop, routing, destination options
_SYN = 0x02

_u16 = struct.Struct("!H").unpack_from
_tcp = struct.Struct("!HHI4xBB").unpack_from


class Segment(NamedTuple):
    """The fields of a TCP header. `addresses` are source and destination, 4 or 16 bytes each."""

    addresses: bytes
    source_port: int
    port: int
    sequence: int
    payload: int
    syn: bool


def parse_segment(data: bytes, link_type: int, wire_length: int) -> Segment | None:
    """The TCP segment in a frame, or None where there is none or its headers are cut off.

    data: the bytes captured; wire_length: those there were. The payload's length comes from the IP
    header, so it is true of a frame cut short, too.
    """
    try:
        kind, offset = _network(data, link_type)
        if kind == _IPV4:
            return _from_ipv4(data, offset, wire_length)
        if kind == _IPV6:
            return _from_ipv6(data, offset, wire_length)
    except (struct.error, IndexError):
        pass
    return None


def _network(data: bytes, link_type: int) -> tuple[int, int]:
    """EtherType and offset of what the link layer carries."""
    if link_type == _ETHERNET:
        kind, offset = _u16(data, 12)[0], 14
    elif link_type == _SLL:
        kind, offset = _u16(data, 14)[0], 16
    elif link_type == _SLL2:
        kind, offset = _u16(data, 0)[0], 20
    else:
        offset = 4 if link_type in _NULL else 0
        return _IPV4 if data[offset] >> 4 == 4 else _IPV6, offset
    while kind in _VLAN:
        kind = _u16(data, offset + 2)[0]
        offset += 4
    return kind, offset


def _from_ipv4(data: bytes, offset: int, wire_length: int) -> Segment | None:
    if data[offset + 9] != _TCP or _u16(data, offset + 6)[0] & 0x1FFF:
        return None  # not TCP, or a later fragment, which has no TCP header
    # A packet of more than 64 kB, as offloads make them, says 0.
    total = _u16(data, offset + 2)[0] or wire_length - offset
    header = (data[offset] & 0x0F) * 4
    return _from_tcp(data, offset + header, data[offset + 12 : offset + 20], total - header)


def _from_ipv6(data: bytes, offset: int, wire_length: int) -> Segment | None:
    total = _u16(data, offset + 4)[0] or wire_length - offset - 40
    following, at = data[offset + 6], offset + 40
    while following in _EXTENSIONS:
        length = (data[at + 1] + 1) * 8
        following = data[at]
        at += length
        total -= length
    if following != _TCP:
        return None
    return _from_tcp(data, at, data[offset + 8 : offset + 40], total)


def _from_tcp(data: bytes, offset: int, addresses: bytes, length: int) -> Segment:
    source_port, port, sequence, words, flags = _tcp(data, offset)
    payload = max(0, length - (words >> 4) * 4)
    return Segment(addresses, source_port, port, sequence, payload, bool(flags & _SYN))
