# SPDX-License-Identifier: BSD-2-Clause
"""Bursts as the program counts them. Times that another CPU wrote may be later than a packet's."""

from __future__ import annotations

import struct
import sys
import time
from pathlib import Path

import pytest
from netns.test_testbed_treatments import connection, prioritised, sent_by_level
from support.waiting import wait_for

from mltcp_tools.kernel.native.bpf_maps import BpfMap
from mltcp_tools.lab.testbed.backend import socket_cookie
from mltcp_tools.live.priorities.maps import KnownJob, PriorityBurst

AHEAD_NS = 10**12
"""A test is over by then; CPUs are apart by less than a millisecond."""

SENT = 1000

pytestmark = pytest.mark.bpf


def put(folder: Path, name: str, value: bytes, key: int) -> None:
    """Write a value as another CPU, or the controller, would."""
    with BpfMap.pinned(folder / f"priority_{name}") as opened:
        opened.set(struct.pack("=I", key), value)


def test_a_later_packet_of_another_processor_is_no_gap() -> None:
    later = time.monotonic_ns() + AHEAD_NS
    with prioritised() as (network, maps, folder), connection(network) as sock:
        maps.set_job(1, KnownJob(0, 10_000_000), [socket_cookie(sock.fileno())])
        put(folder, "bursts", struct.pack("=QQQQII", 1, later, later, 5 * SENT, 3, 1), key=1)
        sock.sendall(bytes(SENT))
        wait_for(lambda: (now := maps.burst(1)) is not None and now.sent >= SENT, "the packet")
        found = maps.burst(1)
    assert found is not None
    assert (found.number, found.before, found.last_ns) == (3, 5 * SENT, later)
    assert found.sent > SENT


def test_a_later_sign_of_the_controllers_life_is_one() -> None:
    later = time.monotonic_ns() + AHEAD_NS
    with prioritised() as (network, maps, folder), connection(network) as sock:
        maps.set_job(1, KnownJob(SENT, 10_000_000), [socket_cookie(sock.fileno())])
        maps.set_level(1, 3)
        put(folder, "alive", later.to_bytes(8, sys.byteorder), key=0)
        before = sent_by_level(network)
        sock.sendall(bytes(SENT))
        wait_for(lambda: sum(sent_by_level(network)) >= sum(before) + SENT, "the packet")
        assert sent_by_level(network)[3] >= before[3] + SENT


def test_a_burst_is_over_at_far_more_than_its_bytes() -> None:
    """Bytes that are sent again count, too."""
    with prioritised() as (network, maps, _), connection(network) as sock:
        maps.set_job(1, KnownJob(9 * SENT, AHEAD_NS), [socket_cookie(sock.fileno())])

        def burst() -> PriorityBurst:
            return maps.burst(1) or PriorityBurst(0, 0, 0, 0, 0, False)

        sock.sendall(bytes(9 * SENT))
        wait_for(lambda: burst().sent >= 9 * SENT, "the packets")
        assert burst().active
        sock.sendall(bytes(3 * SENT))
        wait_for(lambda: burst().sent >= 12 * SENT, "the packets")
        assert not burst().active
