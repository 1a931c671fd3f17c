# SPDX-License-Identifier: BSD-2-Clause
"""The audit trail: an entry of the system's log for each socket that is attached or given back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mltcp_tools.base.units import endpoint
from mltcp_tools.kernel.host import journal

_NOTHING = ("planned", "gone")
"""Outcomes that changed no socket, and were not meant to."""


@dataclass(frozen=True)
class Changed:
    """The outcome for one socket. old, new: the congestion control before and after."""

    job: str
    pid: int
    local: tuple[str, int]
    remote: tuple[str, int]
    old: str
    new: str
    outcome: str
    reason: str


def audit(changes: Iterable[Changed]) -> None:
    """Log these, with the fields JOB, SOCKET, PROCESS and OUTCOME."""
    journal.log([_entry(each) for each in changes if each.outcome not in _NOTHING])


def _entry(changed: Changed) -> tuple[str, dict[str, str]]:
    socket = f"{endpoint(*changed.local)} {endpoint(*changed.remote)}"
    why = f": {changed.reason}" if changed.reason else ""
    fields = {
        "JOB": changed.job,
        "SOCKET": socket,
        "PROCESS": str(changed.pid),
        "OUTCOME": changed.outcome,
        "OLD": changed.old,
        "NEW": changed.new,
    }
    return f"{changed.job}: {socket} {changed.old} -> {changed.new}, {changed.outcome}{why}", fields
