# SPDX-License-Identifier: BSD-2-Clause
"""Cgroups for tests in a VM."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from mltcp_tools.kernel.host import cgroups


@contextlib.contextmanager
def cgroup(name: str, within: Path | None = None) -> Iterator[tuple[Path, int]]:
    """A new cgroup, and a descriptor of its folder."""
    path = (within or cgroups.root()) / name
    path.mkdir()
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield path, folder
    finally:
        os.close(folder)
        if path.is_dir():
            path.rmdir()


@contextlib.contextmanager
def inside(path: Path) -> Iterator[None]:
    """This process is in that cgroup, so the sockets that it makes are."""
    before = cgroups.own()
    (path / "cgroup.procs").write_text(str(os.getpid()))
    try:
        yield
    finally:
        (before / "cgroup.procs").write_text(str(os.getpid()))
