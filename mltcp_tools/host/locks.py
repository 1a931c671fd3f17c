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
    path = RUN_DIR / f"{name}.lock"
    while True:
        RUN_DIR.mkdir(mode=0o755, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (fcntl.LOCK_NB if message else 0))
        except BlockingIOError:
            os.close(descriptor)
            raise BusyError(message or name) from None
        if _is_at(descriptor, path):
            break
        os.close(descriptor)  # somebody has removed the file meanwhile, as taking all off does
    try:
        yield
    finally:
        os.close(descriptor)


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether the open file is the one that is found by the path now."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
