# SPDX-License-Identifier: BSD-2-Clause
"""The way mltcp-tools came onto this host, and what brings its Python packages there."""

from __future__ import annotations

import importlib.machinery
import os
import shlex
import sys
import sysconfig
from pathlib import Path

NAME = "mltcp-tools"
"""The distribution's name."""

ROOT = Path(__file__).resolve().parents[2]
PACKAGED = Path("/usr/lib/mltcp-tools")
_DPKG_FILES = Path("/var/lib/dpkg/info/mltcp-tools.list")
_DEBIAN = {"metrics": "python3-prometheus-client"}
"""Extras whose packages Debian has, new enough."""
_SEEING = "/usr/bin/python3 -m venv --system-site-packages"
_TRAIN = ("collectives", "marl", "ray", "train")
"""Extras that scripts/setup brings with --train only."""


def how_to_bring(extra: str) -> str:
    """Say, as the end of a sentence, what brings the packages of an extra to this installation.

    extra: "" for what every installation needs.
    """
    if ROOT == PACKAGED:
        return _packaged(extra)
    if (ROOT / "scripts/setup").exists() and _in_own_environment():
        train = " --train" if extra in _TRAIN else ""
        return f"run: {shlex.quote(str(ROOT / 'scripts/setup'))}{train}"
    wanted = shlex.quote(f"{NAME}[{extra}]") if extra else NAME
    # Another pip may come first in PATH. pipx's environments have pip, too; uv's don't.
    python = shlex.quote(sys.executable)
    # PathFinder alone: setuptools' finder takes a question for pip as the start of pip, and no C
    # could be compiled in this process any more.
    if importlib.machinery.PathFinder.find_spec("pip") is None:
        return f"run: uv pip install --python {python} {wanted}"
    return f"run: {python} -m pip install {_past_the_distribution()}{wanted}"


def how_to_bring_module(signed: bool) -> str:
    """Say what brings the kernel module. signed: the kernel takes it only with a signature."""
    if ROOT == PACKAGED and _DPKG_FILES.exists():
        key = ", which says what its signature needs" if signed else ""
        return f"install the package tcp-mltcp-dkms of scripts/build-deb{key}"
    where = "" if (ROOT / "kmod/Makefile").exists() else "in a checkout "
    if signed:
        return f"{where}run: make -C kmod dkms, which says what the module's signature needs"
    return (
        f"{where}run: make -C kmod module, which will do; make -C kmod dkms installs it for this"
        " kernel and coming ones"
    )


def how_to_bring_bcc() -> str:
    """Say what brings bcc, which is the distribution's only: PyPI's is another project."""
    text = "install it; on Debian and Ubuntu: apt-get install python3-bpfcc"
    if ROOT == PACKAGED or sys.prefix == sys.base_prefix:
        return text
    if _in_own_environment():
        return f"{text}; then make the virtual environment with scripts/setup"
    return f"{text}; a virtual environment sees it if made by {_SEEING}"


def _in_own_environment() -> bool:
    """Return whether this Python is that of scripts/setup, or one without mltcp-tools."""
    return Path(sys.prefix) == ROOT / ".venv" or sys.prefix == sys.base_prefix


def _packaged(extra: str) -> str:
    if extra in _DEBIAN and _DPKG_FILES.exists():
        return f"run: apt-get install {_DEBIAN[extra]}"
    if not extra:
        return f"install the package {NAME} anew"
    build = "scripts/build-tools-" + ("deb" if _DPKG_FILES.exists() else "rpm")
    return (
        f"install the package {NAME} that `EXTRAS={extra} {build}` builds in a checkout, or"
        " do this on another machine, with a copy of the files"
    )


def _past_the_distribution() -> str:
    """Return the option that lets pip write beside the distribution's own packages.

    Distributions forbid that outside virtual environments (PEP 668); whoever got mltcp-tools there
    by pip has gone past it already.
    """
    marker = os.path.join(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED")
    forbidden = sys.prefix == sys.base_prefix and os.path.exists(marker)
    return "--break-system-packages " if forbidden else ""
