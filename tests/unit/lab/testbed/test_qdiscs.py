# SPDX-License-Identifier: BSD-2-Clause
"""The size of a link's token bucket."""

from __future__ import annotations

from mltcp_tools.lab.experiments.links import Link
from mltcp_tools.lab.testbed.qdiscs import BURST_BYTES, WHOLE_BYTES, burst_bytes

GBIT, ROOM = 1_000_000_000, 2 * WHOLE_BYTES


def test_super_packets_fill_the_link_though_timers_are_late() -> None:
    """A bucket of one super-packet lost what came in between its being full and a late timer."""
    assert burst_bytes(Link(10 * GBIT, 3_000_000, offloads=True)) == WHOLE_BYTES + 125_000
    assert burst_bytes(Link(GBIT, 300_000, offloads=True)) == WHOLE_BYTES + 12_500


def test_a_bucket_holds_no_more_than_the_queue_has_room_for() -> None:
    assert burst_bytes(Link(10 * GBIT, ROOM + 1000, offloads=True)) == WHOLE_BYTES + 1000
    assert burst_bytes(Link(10 * GBIT, ROOM, offloads=True)) == WHOLE_BYTES
    assert burst_bytes(Link(10 * GBIT, ROOM - 1, offloads=True)) == BURST_BYTES
    assert burst_bytes(Link(10 * GBIT, 3_000_000)) == BURST_BYTES
