# SPDX-License-Identifier: BSD-2-Clause
"""The extra of mltcp-tools that brings a package not every host has, as its metadata says."""

from __future__ import annotations

import re
import traceback
from importlib import metadata

from mltcp_tools.base.errors import HostError
from mltcp_tools.base.installation import NAME, how_to_bring

_NAMES = {"yaml": "pyyaml"}
"""Packages whose distribution is called otherwise."""
_REQUIREMENT = re.compile(r"""([\w.-]+)(?:.*\bextra\s*==\s*['"]([\w.-]+)['"])?""")


def lacks_package(command: str, error: ModuleNotFoundError) -> HostError | None:
    """Say what to do where `mltcp COMMAND` lacks a package of ours; None where it isn't one."""
    package = (error.name or "").partition(".")[0]
    extras = extras_with(package)
    if extras is None:
        return None
    return HostError(
        f"`mltcp {command}` needs the Python package {package}, which is not installed;"
        f" {how_to_bring(_best(extras, error))}."
    )


def extras_with(package: str) -> dict[str, set[str]] | None:
    """Map the extras that bring a package to the distributions of each.

    Empty where every installation has it, None where mltcp-tools has no use for it.
    """
    brought: dict[str, set[str]] = {}
    for requirement in _requirements():
        if match := _REQUIREMENT.match(requirement):
            name = re.sub("[-_.]+", "-", match[1]).lower()
            brought.setdefault(match[2] or "", set()).add(name)
    wanted = _NAMES.get(package, package.replace("_", "-").lower())
    if wanted in brought.pop("", set()):
        return {}
    return {extra: names for extra, names in brought.items() if wanted in names} or None


def _requirements() -> list[str]:
    try:
        return metadata.requires(NAME) or []
    except metadata.PackageNotFoundError:  # sources that were never installed
        return []


def _best(extras: dict[str, set[str]], error: ModuleNotFoundError) -> str:
    """Choose the extra named as a folder or command that imports the package, as that needs the
    rest of it, too; else the largest that holds no other."""
    importing = set[str]()
    for frame, _ in traceback.walk_tb(error.__traceback__):
        *folders, own = frame.f_globals["__name__"].split(".")
        importing.update(folders, [own] if "cli" in folders else [])
    least = [
        extra
        for extra, names in extras.items()
        if not any(other < names for other in extras.values())
    ]
    named = [extra for extra in extras if extra in importing]
    return max(named or least, key=lambda extra: len(extras[extra]), default="")
