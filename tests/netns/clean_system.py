# SPDX-License-Identifier: BSD-2-Clause
"""Systems that have nothing but what is asked for, by default of this host's release."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

NEEDED = "python3,libbpf1,libelf1,kmod,iproute2,debianutils"
"""Dependencies of the package of the tools."""


def clean_system(
    folder: Path, needed: str = NEEDED, suite: str = "", sources: Sequence[str] = ()
) -> Path:
    """Make one in the folder; its root. sources: lines of its sources.list, default Debian's."""
    root = folder / "root"
    release = suite or platform.freedesktop_os_release()["VERSION_CODENAME"]
    making = ["mmdebstrap", "--quiet", "--variant=apt", f"--include={needed}", release, root]
    subprocess.run([*making, *sources], check=True)
    return root


def files(root: Path, *more: str) -> set[str]:
    """Everything there but what dpkg and apt note of each of their runs.

    more: patterns of paths that others note likewise.
    """
    noted = (
        *("proc", "root", "var/log", "var/lib/dpkg", "var/lib/apt", "var/cache/apt"),
        *more,
    )
    found = set()
    for folder, below, names in os.walk(root):
        here = Path(folder).relative_to(root)
        below[:] = [each for each in below if not _matches(here / each, noted)]
        names = [each for each in names if not _matches(here / each, noted)]
        found |= {str(here / each) for each in (*below, *names)}
    return found


def _matches(path: Path, patterns: Sequence[str]) -> bool:
    return any(fnmatch(str(path), each) for each in patterns)
