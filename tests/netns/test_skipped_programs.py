# SPDX-License-Identifier: BSD-2-Clause
"""Kernels skip a program now and then, and take garbage for what it would have returned."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

import pytest
from netns.connections import bottleneck, connection, send_burst
from netns.own_programs import registered

from mltcp_tools.kernel.backends.base import JobParams
from mltcp_tools.kernel.backends.pins import skipped_results

pytestmark = pytest.mark.bpf

SSTHRESH_OFFSET = 76
"""Of tcpi_snd_ssthresh in struct tcp_info (linux/tcp.h); tcpi_snd_cwnd follows."""

LONGEST = 10_000
"""Segments; the bottleneck and its queue hold some twenty."""


@pytest.mark.parametrize("name", ["skipped", "skipped_more", "skipped_zero"])
def test_a_window_stays_one_where_programs_are_skipped(
    name: str, pins: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mltcp_tools.kernel.backends.pins.PIN_ROOT", pins)
    assert skipped_results() is None
    with (
        registered(name, JobParams(), pins, tmp_path),
        bottleneck() as network,
        connection(network, name) as sender,
    ):
        for _ in range(8):
            send_burst(sender, 400_000)
            # What is skipped at the end of a burst, the next ACK fixes; its loss may be another.
            for _ in range(3):
                send_burst(sender, 1000)
                info = sender.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 128)
                ssthresh, cwnd = struct.unpack_from("=II", info, SSTHRESH_OFFSET)
                if 2 <= ssthresh < LONGEST and cwnd < LONGEST:
                    break
            assert 2 <= ssthresh < LONGEST
            assert 1 <= cwnd < LONGEST
        assert network.counters().drops > 0, "nothing was lost, so nothing was asked for"
        assert (skipped_results() or 0) > 0, "nobody counted them"
