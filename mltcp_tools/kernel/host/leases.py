# SPDX-License-Identifier: BSD-2-Clause
"""Leases: who uses a kernel side right now, though it may have no socket at this moment.

A user has a file in RUN_DIR/leases for as long as it works, and holds a record lock on it. The
kernel drops the lock with the process, however that ends, and a child doesn't inherit it: so a file
without a lock is a dead one's and means nothing.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from mltcp_tools.base.errors import UnknownError
from mltcp_tools.kernel.host.locks import RUN_DIR

LEASES = RUN_DIR / "leases"
_LARGEST = 4096
_numbers = itertools.count()


@dataclass(frozen=True)
class BackendUser:
    """pid: of the user. what: what it does, such as `mltcp agent`. backend: what it uses."""

    pid: int
    what: str
    backend: str

    def __str__(self) -> str:
        return f"{self.what} (process {self.pid})"


@contextmanager
def leased(what: str, backend: str, folder: Path = LEASES) -> Iterator[None]:
    """Be listed as a user of the backend. A user who may not write the folder isn't listed."""
    path = folder / f"{os.getpid()}-{next(_numbers)}.json"
    scratch = path.with_suffix(".new")
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        scratch.unlink(missing_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(scratch, flags, 0o644)
    except PermissionError:
        yield
        return
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX)
        document = {"pid": os.getpid(), "what": what, "backend": backend}
        os.write(descriptor, json.dumps(document).encode())
        scratch.rename(path)
        yield
    finally:
        for each in (path, scratch):
            each.unlink(missing_ok=True)
        os.close(descriptor)


def leases(backend: str | None = None, folder: Path = LEASES) -> list[BackendUser]:
    """The living users of the backend, or of any, but this very process; by pid."""
    found = []
    for path in folder.glob("*.json") if folder.is_dir() else ():
        # Closing a file that this process has locked would drop that lock.
        if path.name.split("-")[0] != str(os.getpid()) and (lease := _read(path)):
            found.append(lease)
    chosen = [each for each in found if backend in (None, each.backend)]
    return sorted(chosen, key=lambda each: each.pid)


def _read(path: Path) -> BackendUser | None:
    """The lease in a file; None where its user is dead, or it isn't to be believed.

    UnknownError where it can't be read.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP):
            return None
        raise UnknownError(
            f"{path} can't be read ({error.strerror}), so the users of MLTCP are unknown; run it"
            " as root."
        ) from error
    with open(descriptor, "rb") as file:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode) or info.st_uid not in (0, os.geteuid()):
            return None
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            with suppress(ValueError, TypeError, KeyError):
                document = json.loads(file.read(_LARGEST))
                return BackendUser(
                    int(document["pid"]), str(document["what"]), str(document["backend"])
                )
            return None
        with suppress(PermissionError):
            path.unlink(missing_ok=True)
    return None
