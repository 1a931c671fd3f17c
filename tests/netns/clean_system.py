"""Systems of this host's release that have nothing but what is asked for."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

NEEDED = "python3,libbpf1,libelf1,kmod,iproute2,debianutils"
"""Dependencies of the package of the tools."""


def clean_system(folder: Path) -> Path:
    """Make one in the folder; its root."""
    root = folder / "root"
    release = platform.freedesktop_os_release()["VERSION_CODENAME"]
    making = ["mmdebstrap", "--quiet", "--variant=apt", f"--include={NEEDED}", release, root]
    subprocess.run(making, check=True)
    return root


def files(root: Path) -> set[str]:
    """Everything there but what dpkg and apt note of each of their runs."""
    noted = ("proc", "root", "var/log", "var/lib/dpkg", "var/lib/apt", "var/cache/apt")
    found = set()
    for folder, below, names in os.walk(root):
        below[:] = [
            each for each in below if str(Path(folder, each).relative_to(root)) not in noted
        ]
        found |= {str(Path(folder, each).relative_to(root)) for each in (*below, *names)}
    return found
