# SPDX-License-Identifier: BSD-2-Clause
"""Names of the TCP states."""

from __future__ import annotations

_STATES = (
    "unknown",
    "established",
    "syn-sent",
    "syn-recv",
    "fin-wait-1",
    "fin-wait-2",
    "time-wait",
    "close",
    "close-wait",
    "last-ack",
    "listen",
    "closing",
    "new-syn-recv",
)
"""In the order of net/tcp_states.h."""


def tcp_state(number: int) -> str:
    """The name of a state as sock_diag, TCP_INFO and /proc/net/tcp number it."""
    return _STATES[number] if number < len(_STATES) else _STATES[0]
