# SPDX-License-Identifier: BSD-2-Clause
"""Socket options of the emulator: congestion control, small-packet delay, dead-peer detection.

Send and receive buffers are left to the kernel's autotuning: a fixed SO_SNDBUF would hide the
window behind a queue inside the socket, and disable the autotuning real training traffic has.
"""

from __future__ import annotations

import errno
import math
import socket

from mltcp_tools.base.errors import HostError
from mltcp_tools.kernel.host.facts import available_congestion_controls
from mltcp_tools.lab.emulator.tcpinfo import read_tcp_info


def prepare_socket(sock: socket.socket, timeout_s: float) -> None:
    """Send small records at once, and have TCP give up on a silent peer after `timeout_s` seconds.

    TCP_USER_TIMEOUT covers data that nobody acknowledges; keepalive covers a connection with
    nothing under way, as during a compute phase.
    """
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(
        socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, max(1, math.ceil(timeout_s * 1000))
    )
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    seconds = max(1, int(timeout_s / 2))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, seconds)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, seconds // 2))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)


def congestion_control(sock: socket.socket) -> str:
    """The name of the socket's congestion control, as the kernel says."""
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode()


def set_congestion_control(sock: socket.socket, name: str) -> None:
    """Give the socket congestion control `name` and read it back. Raises HostError."""
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
    except OSError as error:
        if error.errno == errno.ENOENT:
            known = ", ".join(available_congestion_controls())
            raise HostError(
                f"This host has no congestion control {name!r}; choose one of {known}, or load it "
                "first."
            ) from error
        if error.errno == errno.EPERM:
            raise HostError(
                f"Congestion control {name!r} is restricted on this host; run as root, or add it "
                "to the sysctl net.ipv4.tcp_allowed_congestion_control."
            ) from error
        raise HostError(
            f"The kernel refused congestion control {name!r} ({error.strerror})."
        ) from error
    actual = congestion_control(sock)
    if actual != name:
        raise HostError(f"The socket uses congestion control {actual!r} although {name!r} was set.")


class StallWatch:
    """Notices when a connection has moved nothing, in either direction, for some time.

    Looks at TCP's own counters: a full send buffer that drains slowly is progress.
    """

    def __init__(self, sock: socket.socket, now: float) -> None:
        self._sock = sock
        self._marker = -1
        self._since = now
        self.stalled_s(now)

    def stalled_s(self, now: float) -> float:
        """Seconds, up to `now`, since the counters were last seen to change."""
        info = read_tcp_info(self._sock)
        marker = info.bytes_acked + info.bytes_received
        if marker != self._marker:
            self._marker = marker
            self._since = now
        return now - self._since
