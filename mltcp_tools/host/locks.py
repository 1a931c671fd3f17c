"""Locks between processes that change or read the same thing in the kernel."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mltcp_tools.errors import BusyError

RUN_DIR = Path("/run/mltcp")


@contextmanager
def exclusive(name: str, message: str | None = None) -> Iterator[None]:
    """Hold RUN_DIR/NAME.lock; BusyError with message instead of waiting when one is given."""
    RUN_DIR.mkdir(mode=0o755, parents=True, exist_ok=True)
    descriptor = os.open(RUN_DIR / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (fcntl.LOCK_NB if message else 0))
    except BlockingIOError:
        os.close(descriptor)
        raise BusyError(message or name) from None
    try:
        yield
    finally:
        os.close(descriptor)
