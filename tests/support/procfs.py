# SPDX-License-Identifier: BSD-2-Clause
"""Processes as /proc shows them, which may end while it is asked."""

from __future__ import annotations

import contextlib
from pathlib import Path


def _read(pid: int, name: str) -> str:
    """A file of a process; "" where it has ended, be it between opening and reading the file."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/{name}").read_text(errors="replace")
    return ""


def children(pid: int) -> list[int]:
    """The pids of a process's children; none where it has ended."""
    return [int(each) for each in _read(pid, f"task/{pid}/children").split()]


def command(pid: int) -> list[str]:
    """The words of a process's command line; none where it has ended."""
    line = _read(pid, "cmdline")
    return line.split("\0") if line else []


def state(pid: int) -> str:
    """A process's state by one letter, `Z` for a zombie; "" where it has ended."""
    return _read(pid, "stat").rpartition(")")[2].strip()[:1]
