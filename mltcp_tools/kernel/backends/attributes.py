# SPDX-License-Identifier: BSD-2-Clause
"""The messages between the tool and the kernel module, as nested attributes (kmod/mltcp.yaml).

Attributes that a newer module adds are passed over; one that an older module doesn't send is 0.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from enum import IntEnum

from mltcp_tools.kernel.backends.base import Flow, IterationEvent, Job, JobParams
from mltcp_tools.kernel.backends.genl import decode, encode, number, text
from mltcp_tools.kernel.backends.params import params_fields, params_from_fields
from mltcp_tools.kernel.host.tcpstates import tcp_state
from mltcp_tools.kernel.native.uapi import (
    Attribute,
    FlowAttribute,
    IterationAttribute,
    Params,
    address_text,
    from_fixed,
)

_WIDE = (Params.BURST_BYTES, Params.GAP_NS)
"""Parameters of 64 bits; the others have 32."""

_NESTED = 1 << 15
"""NLA_F_NESTED, without which the kernel refuses an attribute made of others."""


def _field(kind: IntEnum) -> str:
    return kind.name.lower()


def job_attributes(job: Job) -> dict[int, bytes]:
    """The attributes of JOB_SET."""
    fields = params_fields(job.params)
    params: dict[int, bytes] = {
        kind: struct.pack("=Q" if kind in _WIDE else "=I", fields[_field(kind)]) for kind in Params
    }
    return {
        Attribute.JOB_ID: struct.pack("=I", job.id),
        Attribute.JOB_NAME: job.name.encode() + b"\0",
        Attribute.JOB_PARAMS | _NESTED: encode(params),
    }


def job_from(attributes: Mapping[int, bytes]) -> Job:
    """The job of an answer to JOB_GET. What another program named unfit to print shows as `?`."""
    name = text(attributes[Attribute.JOB_NAME])
    return Job(
        number(attributes[Attribute.JOB_ID]),
        "".join(each if each.isprintable() else "?" for each in name) or "?",
        params_from(attributes[Attribute.JOB_PARAMS]),
    )


def params_from(nested: bytes) -> JobParams:
    """The parameters that JOB_PARAMS holds."""
    _, value = _decoded(nested)
    return params_from_fields({_field(kind): value(kind) for kind in Params})


def _decoded(nested: bytes) -> tuple[dict[int, bytes], Callable[[int], int]]:
    """Nested attributes, and a function for those that are numbers: 0 where there is none."""
    given = decode(nested)
    return given, lambda kind: number(given.get(kind, b""))


def flow_from(nested: bytes) -> Flow:
    """The flow that FLOW holds."""
    given, value = _decoded(nested)
    return Flow(
        cookie=value(FlowAttribute.COOKIE),
        netns=value(FlowAttribute.NETNS),
        congestion_control=text(given[FlowAttribute.CA_NAME]),
        state=tcp_state(value(FlowAttribute.STATE)),
        local_addr=address_text(given[FlowAttribute.LOCAL_ADDR]),
        local_port=value(FlowAttribute.LOCAL_PORT),
        remote_addr=address_text(given[FlowAttribute.REMOTE_ADDR]),
        remote_port=value(FlowAttribute.REMOTE_PORT),
        job_id=value(FlowAttribute.JOB),
        iteration=value(FlowAttribute.ITERATION),
        sent_bytes=value(FlowAttribute.SENT_BYTES),
        ratio=from_fixed(value(FlowAttribute.RATIO)),
        learned_bytes=value(FlowAttribute.LEARNED_BYTES),
        learned_gap_s=value(FlowAttribute.LEARNED_GAP_US) / 1e6,
        confidence=from_fixed(value(FlowAttribute.CONFIDENCE)),
        gain=from_fixed(value(FlowAttribute.GAIN)),
        active=bool(value(FlowAttribute.ACTIVE)),
        cwnd=value(FlowAttribute.CWND),
        ssthresh=value(FlowAttribute.SSTHRESH),
        srtt_us=value(FlowAttribute.SRTT_US),
        retransmits=value(FlowAttribute.RETRANSMITS),
        queue_us=value(FlowAttribute.QUEUE_US),
        full_queue_us=value(FlowAttribute.FULL_QUEUE_US),
        acks=value(FlowAttribute.ACKS),
        losses=value(FlowAttribute.LOSSES),
        yields=value(FlowAttribute.YIELDS),
        bidirectional=bool(value(FlowAttribute.BIDIRECTIONAL)),
    )


def iteration_from(nested: bytes) -> IterationEvent:
    """The finished iteration that ITERATION holds."""
    given, value = _decoded(nested)
    return IterationEvent(
        job_id=value(IterationAttribute.JOB),
        cookie=value(IterationAttribute.COOKIE),
        local_addr=address_text(given[IterationAttribute.LOCAL_ADDR]),
        local_port=value(IterationAttribute.LOCAL_PORT),
        remote_addr=address_text(given[IterationAttribute.REMOTE_ADDR]),
        remote_port=value(IterationAttribute.REMOTE_PORT),
        iteration=value(IterationAttribute.ITERATION),
        first_ack_s=value(IterationAttribute.FIRST_ACK_NS) / 1e9,
        last_ack_s=value(IterationAttribute.LAST_ACK_NS) / 1e9,
        bytes=value(IterationAttribute.BYTES),
        retransmits=value(IterationAttribute.RETRANSMITS),
        srtt_us=value(IterationAttribute.SRTT_US),
        cwnd=value(IterationAttribute.CWND),
        ratio=from_fixed(value(IterationAttribute.RATIO)),
    )
