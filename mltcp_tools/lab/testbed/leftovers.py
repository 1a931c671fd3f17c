# SPDX-License-Identifier: BSD-2-Clause
"""A run's possessions on the host; the next run finds and removes those of a killed one.

A run holds a lock on /run/mltcp/testbed/ID.lock for as long as it lives; its namespaces are called
mltcp-ID-…, and its jobs in a backend have the ids ID * 256 + 1 and up. The kernel drops the lock
with the process, so a lock that can be had belongs to a run that is dead: what carries its ID is
removed. Nothing of a living run, and nothing with another name, is ever touched.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from pathlib import Path

from mltcp_tools.base.errors import HostError
from mltcp_tools.kernel.host import cgroups
from mltcp_tools.kernel.host.facts import effective_capabilities
from mltcp_tools.kernel.host.locks import is_at, try_lock
from mltcp_tools.lab.testbed import backend
from mltcp_tools.lab.testbed.namespaces import NAMESPACES, PREFIX, remove_namespace

LOCKS = Path("/run/mltcp/testbed")
_SUFFIX = ".lock"
_BPF = Path("/sys/fs/bpf")


def require_privileges() -> None:
    """Raise HostError unless this process may make namespaces and links."""
    missing = sorted({"CAP_NET_ADMIN", "CAP_SYS_ADMIN"} - effective_capabilities())
    if missing:
        raise HostError(
            f"The testbed makes network namespaces, and {' and '.join(missing)} is missing;"
            " run it as root."
        )


class RunLock:
    """The mark of a living run. `id`: six hexadecimal digits that no other living run has.

    A context manager; leaving it removes the mark, so whatever bears the id must be gone by then.
    """

    def __init__(self) -> None:
        self.id = ""
        self._fd = -1

    def __enter__(self) -> RunLock:
        LOCKS.mkdir(parents=True, exist_ok=True)
        while True:
            self.id = f"{secrets.randbelow(0xFFFFFF) + 1:06x}"  # 0 would make job ids people use
            path = self._path
            try:
                self._fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o644)
            except FileExistsError:
                continue
            # Between open and flock another process may take the new file for a dead run's.
            if try_lock(self._fd) and is_at(self._fd, path):
                os.write(self._fd, f"{os.getpid()}\n".encode())
                return self
            os.close(self._fd)

    def __exit__(self, *_: object) -> None:
        self._path.unlink(missing_ok=True)
        os.close(self._fd)

    @property
    def _path(self) -> Path:
        return LOCKS / f"{self.id}{_SUFFIX}"

    def job_id(self, number: int) -> int:
        """Id, in a backend, of the run's job `number` (1 to 255)."""
        return _job_ids(self.id)[number]


def remove_leftovers() -> list[str]:
    """Remove what dead runs left; name each thing removed. Needs the privileges.

    Processes need no removing: the emulators end when the run that started them does.
    """
    removed: list[str] = []
    for path in sorted(LOCKS.glob(f"*{_SUFFIX}")):
        with contextlib.suppress(FileNotFoundError), open(path) as file:
            if not try_lock(file.fileno()) or not is_at(file.fileno(), path):
                continue
            run = path.name.removesuffix(_SUFFIX)
            for namespace in sorted(NAMESPACES.glob(f"{PREFIX}{run}-*")):
                remove_namespace(namespace.name)
                removed.append(f"namespace {namespace.name}")
            if (folder := priorities_folder(run)).is_dir():
                shutil.rmtree(folder)
                removed.append(f"priorities in {folder}")
            if cgroups.remove(f"{PREFIX}{run}"):
                removed.append(f"cgroup {PREFIX}{run}")
            removed += backend.remove_jobs(LOCKS, _job_ids(run))
            path.unlink(missing_ok=True)
    return removed + backend.remove_loaded(LOCKS)


def priorities_folder(run: str) -> Path:
    """Return the folder in which a run pins its maps of priorities."""
    return _BPF / f"{PREFIX}priorities-{run}"


def other_runs(own: str) -> list[str]:
    """Processes of living runs on this host but the one with the id `own`, as they wrote them."""
    living = []
    for path in sorted(LOCKS.glob(f"*{_SUFFIX}")):
        with contextlib.suppress(FileNotFoundError), open(path) as file:
            if path.stem != own and not try_lock(file.fileno()):
                living.append(file.read().strip())
    return living


def _job_ids(run: str) -> range:
    return range(int(run, 16) << 8, (int(run, 16) + 1) << 8)
