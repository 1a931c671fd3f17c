# SPDX-License-Identifier: BSD-2-Clause
"""The kernel's knowledge of a TCP socket, read with getsockopt(TCP_INFO)."""

from __future__ import annotations

import socket
import struct
from typing import NamedTuple

# struct tcp_info of linux/tcp.h up to tcpi_bytes_received (Linux 4.1); it only ever grows behind.
_LAYOUT = struct.Struct("=8B24I4Q")
_RTT, _SSTHRESH, _CWND, _RETRANSMITS = 23, 25, 26, 31
_ACKED, _RECEIVED = 34, 35


class TcpInfo(NamedTuple):
    """`cwnd` and `ssthresh` in segments (ssthresh 2147483647: not set), `rtt_us` smoothed, in
    microseconds; `retransmits`, `bytes_acked` and `bytes_received` since the connection began.
    """

    cwnd: int
    ssthresh: int
    rtt_us: int
    retransmits: int
    bytes_acked: int
    bytes_received: int


def read_tcp_info(sock: socket.socket) -> TcpInfo:
    """Read a TCP socket's state. Raises OSError as getsockopt does."""
    data = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LAYOUT.size)
    fields = _LAYOUT.unpack(data)
    return TcpInfo(
        fields[_CWND],
        fields[_SSTHRESH],
        fields[_RTT],
        fields[_RETRANSMITS],
        fields[_ACKED],
        fields[_RECEIVED],
    )
