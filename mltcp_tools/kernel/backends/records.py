# SPDX-License-Identifier: BSD-2-Clause
"""The reports of both kinds of kernel side, structs of kmod/mltcp_uapi.h, as Python's objects."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

from mltcp_tools.kernel.backends.base import Flow, IterationEvent
from mltcp_tools.kernel.host.tcpstates import tcp_state
from mltcp_tools.kernel.native.uapi import (
    ANY_BIDIRECTIONAL,
    CONFIDENCE_MAX,
    address_text,
    ffi,
    from_fixed,
    unpack,
)


def flow(data: bytes) -> Flow:
    """The flow of a struct mltcp_flow_record."""
    record = unpack("mltcp_flow_record", data)
    inner = record.flow
    return Flow(
        cookie=record.cookie,
        netns=record.netns,
        congestion_control=ffi.string(record.ca_name).decode(errors="replace"),
        state=tcp_state(record.state),
        local_addr=address_text(bytes(record.local_addr)),
        local_port=record.local_port,
        remote_addr=address_text(bytes(record.remote_addr)),
        remote_port=record.remote_port,
        job_id=record.tagged_job,
        iteration=inner.iteration,
        sent_bytes=inner.acked_bytes - inner.start_bytes,
        ratio=from_fixed(inner.ratio),
        learned_bytes=inner.total_kib * 1024,
        learned_gap_s=inner.gap_us / 1e6,
        confidence=inner.confidence / CONFIDENCE_MAX,
        gain=from_fixed(inner.gain),
        active=bool(inner.active),
        cwnd=record.snd_cwnd,
        ssthresh=record.snd_ssthresh,
        srtt_us=inner.srtt_us,
        retransmits=(inner.retransmits - inner.start_retransmits) % 2**32 if inner.iteration else 0,
        queue_us=inner.delay.queue_us,
        full_queue_us=inner.delay.full_us,
        acks=inner.acks,
        losses=inner.losses,
        yields=inner.yields,
        bidirectional=bool(inner.flags & ANY_BIDIRECTIONAL),
    )


def iteration(event: Any) -> IterationEvent:
    """The finished iteration of a cffi `struct mltcp_event`."""
    return IterationEvent(
        job_id=event.job,
        cookie=event.cookie,
        local_addr=address_text(bytes(event.local_addr)),
        local_port=event.local_port,
        remote_addr=address_text(bytes(event.remote_addr)),
        remote_port=event.remote_port,
        iteration=event.iteration,
        first_ack_s=event.first_ack_ns / 1e9,
        last_ack_s=event.last_ack_ns / 1e9,
        bytes=event.bytes,
        retransmits=event.retransmits,
        srtt_us=event.srtt_us,
        cwnd=event.cwnd,
        ratio=from_fixed(event.ratio),
    )


_ENDS_BYTES = 36
"""Both addresses and both ports, which stand side by side in an event and in a flow's record."""

_EVENT_ENDS = ffi.offsetof("struct mltcp_event", "local_addr")
_FLOW_ENDS = ffi.offsetof("struct mltcp_flow_record", "local_addr")
_COOKIE = struct.Struct(
    f"=Q{_FLOW_ENDS - 8}x{_ENDS_BYTES}s"
    f"{ffi.sizeof('struct mltcp_flow_record') - _FLOW_ENDS - _ENDS_BYTES}x"
)


def ends_of_event(data: bytes) -> bytes:
    """The ends of the connection of a struct mltcp_event, as the kernel side writes them."""
    return data[_EVENT_ENDS : _EVENT_ENDS + _ENDS_BYTES]


def cookies(data: Iterable[bytes]) -> dict[bytes, int]:
    """Cookies by the ends of the connections, of many struct mltcp_flow_record."""
    return {ends: cookie for cookie, ends in map(_COOKIE.unpack, data)}
