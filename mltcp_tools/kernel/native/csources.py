# SPDX-License-Identifier: BSD-2-Clause
"""The places of the C sources, and of what is compiled from them.

An installed package carries the sources in `mltcp_tools/csrc`; an editable install finds them
in the checkout beside the package.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from mltcp_tools.base.errors import HostError
from mltcp_tools.kernel.native.source_hash import version_of

_PACKAGE = Path(__file__).resolve().parents[2]


def source_root() -> Path:
    """The folder that has `bpf/` and `kmod/`."""
    for root in (_PACKAGE / "csrc", _PACKAGE.parent):
        if (root / "kmod" / "mltcp_core.h").is_file() and (root / "bpf").is_dir():
            return root
    raise HostError(
        f"The C sources (bpf/, kmod/mltcp_core.h) are neither in {_PACKAGE / 'csrc'} nor beside "
        f"{_PACKAGE}; install the package again."
    )


def cache_dir() -> Path:
    """A folder for compiled objects that only this user can write to, made when missing.

    /var/cache/mltcp for root, else below XDG_CACHE_HOME (default ~/.cache). What is in it gets
    loaded into the kernel, so a folder of somebody else's is refused.
    """
    if os.geteuid() == 0:
        path = Path("/var/cache/mltcp")
    else:
        path = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mltcp"
    path.mkdir(parents=True, exist_ok=True, mode=0o755)
    info = path.lstat()
    if (
        not stat.S_ISDIR(info.st_mode)
        or info.st_uid != os.geteuid()
        or info.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    ):
        raise HostError(
            f"{path} is not a folder that only uid {os.geteuid()} can write to; remove it, it "
            "holds nothing but compiled objects."
        )
    return path


def digest(files: Iterable[Path], *more: str) -> str:
    """A short name for all that files contain and for other strings that decide on a build."""
    state = hashlib.sha256()
    for file in sorted(files):
        state.update(file.name.encode() + b"\0" + file.read_bytes())
    for text in more:
        state.update(b"\0" + text.encode())
    return state.hexdigest()[:16]


def algorithm_headers() -> list[Path]:
    """The headers that every host of the algorithm compiles; all of them, by their name."""
    return sorted((source_root() / "kmod").glob("mltcp_*.h"))


def program_sources() -> list[Path]:
    """Return the sources of the eBPF programs."""
    return [*(source_root() / "bpf").glob("*.[ch]"), *algorithm_headers()]


def algorithm() -> str:
    """A short name for the algorithm's version."""
    return version_of(algorithm_headers())
