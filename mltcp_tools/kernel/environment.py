# SPDX-License-Identifier: BSD-2-Clause
"""environment.json: the host a run was made on, and how the run went."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import platform
import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mltcp_tools import __version__
from mltcp_tools.base.files import replace_file
from mltcp_tools.kernel.host.facts import read_sysctl
from mltcp_tools.kernel.native.csources import algorithm

SCHEMA = "mltcp-environment/1"
# What decides how TCP behaves; a sysctl the kernel lacks is recorded as null.
SYSCTLS = (
    "net.core.default_qdisc",
    "net.core.rmem_max",
    "net.core.wmem_max",
    "net.ipv4.tcp_allowed_congestion_control",
    "net.ipv4.tcp_available_congestion_control",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_ecn",
    "net.ipv4.tcp_limit_output_bytes",
    "net.ipv4.tcp_no_metrics_save",
    "net.ipv4.tcp_notsent_lowat",
    "net.ipv4.tcp_pacing_ca_ratio",
    "net.ipv4.tcp_pacing_ss_ratio",
    "net.ipv4.tcp_recovery",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_sack",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_window_scaling",
    "net.ipv4.tcp_wmem",
)
_PACKAGES = ("click", "numpy", "pandas", "pyroute2", "PyYAML")


class RunEnvironment:
    """The document, written at once and again whenever something is added to it."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "environment.json"
        self._document: dict[str, Any] = {
            "schema": SCHEMA,
            "start": _now(),
            "end": None,
            "outcome": "running",
            "command": shlex.join(sys.argv),
            "kernel": {
                "release": platform.release(),
                "version": platform.version(),
                "machine": platform.machine(),
            },
            "distribution": _distribution(),
            "cpus": len(os.sched_getaffinity(0)),
            "cpu_model": cpu_model(),
            "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
            "load_average": list(os.getloadavg()),
            "versions": {
                "mltcp-tools": __version__,
                "algorithm": algorithm(),
                "python": platform.python_version(),
            }
            | _packages(),
            "sysctls": sysctls(),
            "warnings": [],
        }
        self.write()

    def add(self, **facts: Any) -> None:
        """Add facts and write the document."""
        self._document |= facts
        self.write()

    def warn(self, sentence: str) -> None:
        """Record a doubt about the run."""
        if sentence not in self._document["warnings"]:
            self._document["warnings"].append(sentence)
            self.write()

    def finish(self, outcome: str) -> None:
        """Record the end: `finished`, `interrupted`, or the sentence of what went wrong."""
        self.add(end=_now(), outcome=outcome, load_average_end=list(os.getloadavg()))

    def write(self) -> None:
        """Write the document, whole."""
        replace_file(self._path, json.dumps(self._document, indent=2).encode() + b"\n")


def sysctls() -> dict[str, str | None]:
    """SYSCTLS as the calling thread's namespace has them."""
    values: dict[str, str | None] = {}
    for key in SYSCTLS:
        try:
            values[key] = read_sysctl(key)
        except OSError:
            values[key] = None
    return values


def _packages() -> dict[str, str]:
    """Versions of those of _PACKAGES that this host has."""
    found = {}
    for name in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _distribution() -> str | None:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME")
    except OSError:
        return None


def cpu_model() -> str | None:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return None
