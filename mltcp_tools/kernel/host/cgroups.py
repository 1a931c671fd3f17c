# SPDX-License-Identifier: BSD-2-Clause
"""Control groups of version 2, for BPF programs that see the sockets of some processes alone."""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Iterator
from pathlib import Path

from mltcp_tools.base.errors import HostError

_EMPTY_S = 2.0


@functools.cache
def root() -> Path:
    """Return the mount point of cgroup2; HostError where it isn't."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, place, kind, *_ = line.split()
        if kind == "cgroup2":
            return Path(place)
    raise HostError(
        "No cgroup2 is mounted, which BPF needs to see a process's sockets: mount -t cgroup2 none"
        " /sys/fs/cgroup/unified"
    )


@functools.cache
def _mounts() -> tuple[str, ...]:
    """Mounts of cgroups of either version, the longest paths first."""
    lines = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    found = [place for _, place, kind, *_ in lines if kind in ("cgroup", "cgroup2")]
    return tuple(sorted(found, key=len, reverse=True))


def below_mount(path: str) -> str:
    """The path that a cgroup has for the kernel, of one that people see (/sys/fs/cgroup/…); another
    text as it is."""
    for mount in _mounts():
        if path == mount or path.startswith(f"{mount}/"):
            return path.removeprefix(mount).rstrip("/") or "/"
    return path


def own() -> Path:
    """The cgroup that this process is in."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        number, _, path = line.split(":", 2)
        if number == "0":
            return root() / path.removeprefix("/")
    raise HostError("This process is in no cgroup2; boot the kernel with cgroup2 enabled.")


@contextlib.contextmanager
def joined(name: str) -> Iterator[int]:
    """A new cgroup below the root with this process, and those it starts, inside; then back.

    Yields a descriptor of it. Leaving removes the cgroup, so its processes must have ended.
    """
    before, path = own(), root() / name
    path.mkdir()
    try:
        _enter(path)
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield descriptor
        finally:
            os.close(descriptor)
    finally:
        _enter(before)
        remove(name)


def remove(name: str) -> bool:
    """Remove a cgroup below the root; False where there is none. Its processes must be ending."""
    with contextlib.suppress(HostError):
        path = root() / name
        deadline = time.monotonic() + _EMPTY_S
        while path.is_dir():
            try:
                path.rmdir()
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
            else:
                return True
    return False


def _enter(path: Path) -> None:
    try:
        (path / "cgroup.procs").write_text(f"{os.getpid()}\n")
    except OSError as error:
        raise HostError(f"This process can't enter the cgroup {path} ({error.strerror}).") from None
