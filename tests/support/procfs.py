"""Processes as /proc shows them, which may end while it is asked."""

from __future__ import annotations

import contextlib
from pathlib import Path


def children(pid: int) -> list[int]:
    """The pids of a process's children; none where it has ended."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def command(pid: int) -> list[str]:
    """The words of a process's command line; none where it has ended, even between two calls.

    One that was found and then ends can be opened no longer, or be opened and not read.
    """
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    return []


def state(pid: int) -> str:
    """A process's state by one letter, `Z` for a zombie; "" where it has ended."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return ""
