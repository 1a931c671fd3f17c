# SPDX-License-Identifier: BSD-2-Clause
"""The audit trail: an entry of the system's log for each socket that is attached or given back."""

from __future__ import annotations

from collections.abc import Iterable

from mltcp_tools.base.units import endpoint
from mltcp_tools.kernel.host import journal
from mltcp_tools.live.attach.access import Change

_NOTHING = ("planned", "gone")
"""Outcomes that changed no socket, and were not meant to."""


def audit(changes: Iterable[Change]) -> None:
    """Log these, with the fields JOB, SOCKET, PROCESS and OUTCOME."""
    journal.log([_entry(each) for each in changes if each.outcome not in _NOTHING])


def _entry(change: Change) -> tuple[str, dict[str, str]]:
    socket = f"{endpoint(*change.socket.local)} {endpoint(*change.socket.remote)}"
    why = f": {change.reason}" if change.reason else ""
    fields = {
        "JOB": change.job,
        "SOCKET": socket,
        "PROCESS": str(change.socket.pid),
        "OUTCOME": change.outcome,
        "OLD": change.old,
        "NEW": change.new,
    }
    return f"{change.job}: {socket} {change.old} -> {change.new}, {change.outcome}{why}", fields
