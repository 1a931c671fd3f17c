# SPDX-License-Identifier: BSD-2-Clause
"""The structs of kmod/mltcp_uapi.h, declared to Python.

Declared without a compiler (cffi's ABI mode) so that a host needs none to talk to the kernel.
Three things keep the copy honest: tests/unit/kernel/native/test_uapi.py compares it with the header
as gcc compiles it, the BPF backend compares value sizes with the kernel's maps, and both kinds of
host are little-endian 64-bit Linux.
"""

from __future__ import annotations

import socket
from enum import IntEnum
from typing import Any

from cffi import FFI

SHIFT = 16
ONE = 1 << SHIFT
"""1.0 in the fixed point of ratios, gains and shares (MLTCP_ONE)."""

SCALE_INCREASE = 1 << 0
SCALE_DECREASE = 1 << 1
YIELD = 1 << 2
TRUSTED = 1 << 3
MECHANISMS_DEFAULT = 1 << 31

CONFIDENT = 4
CONFIDENCE_MAX = 11
"""Of what a flow has learned: enough to act (MLTCP_CONFIDENT), and the most there is."""

ANY_TWO_WAY = 0x28
"""Flags of a flow towards which, or towards whose host, much comes (MLTCP_ANY_TWO_WAY)."""

GENL_NAME = "mltcp"
GENL_VERSION = 2
GENL_GROUP = "iterations"
"""The generic netlink family of the kernel module, and its multicast group."""

RULE_PORTS = 4
"""Ports that a rule names: MLTCP_RULE_PORTS of the module, MLTCP_PORTS of bpf/attach.bpf.h."""


class Command(IntEnum):
    """enum mltcp_cmd and mltcp_rule_cmd: commands of the generic netlink family."""

    STATUS_GET = 1
    JOB_SET = 2
    JOB_GET = 3
    JOB_DEL = 4
    TAG = 5
    UNTAG = 6
    FLOW_GET = 7
    ITERATION = 8
    RULE_SET = 9
    RULE_GET = 10
    RULE_DEL = 11


class Attribute(IntEnum):
    """enum mltcp_attr and mltcp_rule_attr: attributes of the generic netlink family."""

    PAD = 1
    JOB_ID = 2
    JOB_NAME = 3
    JOB_PARAMS = 4
    FD = 5
    FLOW = 6
    ITERATION = 7
    NAMES = 8
    VERSION = 9
    DROPPED = 10
    FLOWS = 11
    JOBS = 12
    CGROUP = 13
    LOWEST_PORT = 14
    NOT_PORTS = 15


class Params(IntEnum):
    """enum mltcp_params_attr: what JOB_PARAMS consists of."""

    TOTAL_BYTES = 2
    GAP_NS = 3
    SLOPE = 4
    INTERCEPT = 5
    KEEP_MIN = 6
    KEEP_MAX = 7
    YIELD_MIN = 8
    YIELD_MAX = 9
    SHAPE = 10
    MECHANISMS = 11


class FlowAttribute(IntEnum):
    """enum mltcp_flow_attr: what FLOW consists of."""

    COOKIE = 2
    LOCAL_ADDR = 3
    REMOTE_ADDR = 4
    LOCAL_PORT = 5
    REMOTE_PORT = 6
    NETNS = 7
    JOB = 8
    CWND = 9
    SSTHRESH = 10
    STATE = 11
    CA_NAME = 12
    ITERATION = 13
    SENT_BYTES = 14
    RATIO = 15
    LEARNED_BYTES = 16
    LEARNED_GAP_US = 17
    CONFIDENCE = 18
    GAIN = 19
    ACTIVE = 20
    SRTT_US = 21
    RETRANSMITS = 22
    QUEUE_US = 23
    FULL_QUEUE_US = 24
    ACKS = 25
    LOSSES = 26
    YIELDS = 27
    FINE_STAMPS = 28
    TWO_WAY = 29


class IterationAttribute(IntEnum):
    """enum mltcp_iteration_attr: what ITERATION consists of."""

    COOKIE = 2
    LOCAL_ADDR = 3
    REMOTE_ADDR = 4
    LOCAL_PORT = 5
    REMOTE_PORT = 6
    FIRST_ACK_NS = 7
    LAST_ACK_NS = 8
    BYTES = 9
    JOB = 10
    ITERATION = 11
    RETRANSMITS = 12
    SRTT_US = 13
    CWND = 14
    RATIO = 15


STRUCTS = """
struct mltcp_params {
    uint64_t total_bytes, gap_ns;
    uint32_t slope, intercept, keep_min, keep_max, yield_min, yield_max, shape, mechanisms;
};
struct mltcp_job {
    struct mltcp_params params;
    char name[64];
};
struct mltcp_job_key {
    uint64_t home;
    uint32_t id, pad;
};
struct mltcp_tag {
    uint32_t job, netns;
    uint64_t home;
};
struct mltcp_delay {
    uint32_t queue_us, standing_us, least_us, most_us, sent_us, stamp, ahead_us;
    uint32_t full_us, kib_ns, own_us;
    uint16_t full_date;
    uint8_t own_losses : 4, fine : 4, crossed : 4, watched : 3, held : 1;
};
struct mltcp_before {
    uint32_t resume_ssthresh, full_us, own_us, base_ssthresh;
    uint16_t full_date;
    uint8_t own_losses : 4, over : 2, tight : 2, undone;
};
struct mltcp_host {
    uint32_t came_kib, sent_kib;
};
struct mltcp_flow {
    uint64_t acked_bytes, next_bytes, last_ns, next_ns;
    uint32_t acks, gain, free_gain, free_us, carry, yield_us, resume_ssthresh;
    struct mltcp_delay delay;
    uint64_t send_ns, turn_ns, start_bytes, start_ns, step_bytes, step_ns, told_bytes;
    uint32_t job, iteration, ratio, left_kib, lead_kib, full_cwnd, idle_us;
    uint32_t total_kib, gap_us, inner_us, piece_kib;
    uint32_t longer_us, longer_ms, longer_kib, longer_size, pieces[6];
    uint8_t piece_gaps[6], piece_count, confidence, active, flags, undone;
    uint8_t waits : 1, paces : 1, has_waited : 1, tight : 5;
    uint16_t keep;
    uint32_t cwnd, srtt_us, retransmits, start_retransmits, losses, yields;
    struct mltcp_host host;
    struct mltcp_before before;
};
struct mltcp_event {
    uint64_t cookie, first_ack_ns, last_ack_ns, bytes;
    uint32_t job, iteration, retransmits, srtt_us, cwnd, ratio;
    uint8_t local_addr[16], remote_addr[16];
    uint16_t local_port, remote_port;
    uint32_t netns;
};
struct mltcp_flow_record {
    uint64_t cookie;
    uint32_t netns, tagged_job, snd_cwnd, snd_ssthresh;
    uint8_t local_addr[16], remote_addr[16];
    uint16_t local_port, remote_port;
    uint32_t state;
    char ca_name[16];
    struct mltcp_flow flow;
};
"""

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
