"""What a run of the testbed leaves to see while it lives."""

from __future__ import annotations

import contextlib

from mltcp_tools.testbed.leftovers import LOCKS


def run_id(pid: int) -> str:
    """The id of the run that process `pid` is, once it has one; "" before."""
    for path in LOCKS.glob("*.lock"):
        with contextlib.suppress(FileNotFoundError):
            if path.read_text().strip() == str(pid):
                return path.stem
    return ""
