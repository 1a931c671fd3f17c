# SPDX-License-Identifier: BSD-2-Clause
"""Locks on files (flock) between processes that change or read the same thing.

The kernel drops a lock with the last descriptor of its open file, so a process that was killed
leaves none behind.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mltcp_tools.base.errors import BusyError

RUN_DIR = Path("/run/mltcp")


@contextmanager
def exclusive(name: str, message: str | None = None) -> Iterator[None]:
    """Hold RUN_DIR/NAME.lock; BusyError with message instead of waiting when one is given."""
    RUN_DIR.mkdir(mode=0o755, parents=True, exist_ok=True)
    with exclusive_file(RUN_DIR / f"{name}.lock", message):
        yield


@contextmanager
def exclusive_file(path: Path, message: str | None = None) -> Iterator[None]:
    """Hold the lock on a file, which is made where it is missing; `message` as in `exclusive`."""
    while True:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if message is None:
            lock(descriptor)
        elif not try_lock(descriptor):
            os.close(descriptor)
            raise BusyError(message)
        if is_at(descriptor, path):
            break
        os.close(descriptor)  # another process has removed the file: taking all off does that
    try:
        yield
    finally:
        os.close(descriptor)


def lock(descriptor: int, *, shared: bool = False) -> None:
    """Wait for the lock of an open file."""
    fcntl.flock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)


def try_lock(descriptor: int, *, shared: bool = False) -> bool:
    """Take the lock of an open file unless another process holds it; whether it was taken."""
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def unlock(descriptor: int) -> None:
    """Give the lock of an open file back."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)


def is_at(descriptor: int, path: Path) -> bool:
    """Return whether the open file is the one that the path names now."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
