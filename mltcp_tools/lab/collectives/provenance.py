# SPDX-License-Identifier: BSD-2-Clause
"""Provenance of a table of collectives: command, host and the version of what was compared."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mltcp_tools import __version__, collectives
from mltcp_tools.kernel.environment import cpu_model
from mltcp_tools.kernel.native.csources import source_root
from mltcp_tools.kernel.native.source_hash import version_of

_DECIDING = ("native/*.[ch]", "adaptive/*.py", "sums.py", "blocks.py")


def version() -> str:
    """A short name for the worker, the aggregator and what chooses trees and leaves zeros out."""
    package = Path(collectives.__file__).parent
    files = [file for pattern in _DECIDING for file in package.glob(pattern)]
    files += (source_root() / "bpf").glob("*aggregate*.[ch]")
    return version_of(files)


def made() -> dict[str, Any]:
    """By this process, now."""
    program, *arguments = sys.argv
    return {
        "command": shlex.join([Path(program).name, *arguments]),
        "date": datetime.now(UTC).date().isoformat(),
        "mltcp-tools": __version__,
        "collectives": version(),
        "cpus": len(os.sched_getaffinity(0)),
        "cpu_model": cpu_model(),
        "kernel": platform.release(),
    }
