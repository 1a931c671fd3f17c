# SPDX-License-Identifier: BSD-2-Clause
"""The numbers and structs of kmod/mltcp_uapi.h, as the header has them.

They are declared without a compiler (cffi's ABI mode), so that a host needs none to talk to the
kernel. tests/unit/kernel/native/test_uapi.py compares layouts and numbers with what gcc makes of
the header, the BPF backend compares value sizes with the kernel's maps, and both kinds of host are
little-endian 64-bit Linux.
"""

from __future__ import annotations

import socket
from enum import IntEnum
from typing import Any

from cffi import FFI

from mltcp_tools.kernel.native.constants import constant, enumerators, structs

ONE = constant("ONE")
"""1.0 in the fixed point of ratios, gains and shares."""

SCALE_INCREASE, YIELD, TRUSTED, MECHANISMS_DEFAULT = map(
    constant, ("SCALE_INCREASE", "YIELD", "TRUSTED", "MECHANISMS_DEFAULT")
)

CONFIDENCE_MAX = constant("CONFIDENCE_MAX")
"""Of what a flow has learned, the most there is. From 1 on it acts."""

ANY_BIDIRECTIONAL = constant("ANY_BIDIRECTIONAL")
"""Flags of a flow towards which, or towards whose host, much comes."""

GENL_NAME = "mltcp"
GENL_VERSION = constant("GENL_VERSION")
GENL_GROUP = "iterations"
"""The generic netlink family of the kernel module, and its multicast group."""

RULE_PORTS = 4
"""Ports that a rule names: MLTCP_RULE_PORTS of the module, MLTCP_PORTS of bpf/attach.bpf.h."""


def _numbered(kind: str, *rules: str) -> Any:
    """The numbers of `enum mltcp_KIND`, and those that follow for rules (kmod/rules.h)."""
    names = [*enumerators(f"mltcp_{kind}"), *rules]
    numbers = {name: number for number, name in enumerate(names, 1) if name != "PAD"}
    return IntEnum(kind, numbers)


Command = _numbered("cmd", "RULE_SET", "RULE_GET", "RULE_DEL")
Attribute = _numbered("attr", "CGROUP", "LOWEST_PORT", "NOT_PORTS")
Params = _numbered("params_attr")
"""JOB_PARAMS consists of these."""
FlowAttribute = _numbered("flow_attr")
IterationAttribute = _numbered("iteration_attr")

STRUCTS = structs("mltcp_uapi.h")

_V4_MAPPED = bytes(10) + b"\xff\xff"
"""The first of the 16 bytes of an IPv4-mapped IPv6 address (RFC 4291, 2.5.5.2)."""

ffi = FFI()
ffi.cdef(STRUCTS)


def to_fixed(value: float) -> int:
    """Fixed point, rounded to nearest, of a value that is not negative."""
    return round(value * ONE)


def from_fixed(value: int) -> float:
    """The value of a fixed-point number."""
    return value / ONE


def pack(kind: str, fields: dict[str, Any]) -> bytes:
    """Bytes of `struct kind` with the fields given and zero in all others."""
    return bytes(ffi.buffer(ffi.new(f"struct {kind} *", fields)))


def unpack(kind: str, data: bytes) -> Any:
    """`struct kind` from exactly its size of bytes; ValueError for any other size."""
    if len(data) != ffi.sizeof(f"struct {kind}"):
        raise ValueError(f"{len(data)} bytes are not a struct {kind}")
    struct = ffi.new(f"struct {kind} *")
    ffi.memmove(struct, data, len(data))
    return struct


def address_text(packed: bytes) -> str:
    """Text of a 16-byte address; IPv4-mapped ones as IPv4."""
    if packed.startswith(_V4_MAPPED):
        return socket.inet_ntop(socket.AF_INET, packed[len(_V4_MAPPED) :])
    return socket.inet_ntop(socket.AF_INET6, packed)
