# SPDX-License-Identifier: BSD-2-Clause
"""Commands that lack a Python package name the extra that brings it."""

from __future__ import annotations

import re
from importlib import metadata

from mltcp_tools.base.errors import HostError
from mltcp_tools.base.installation import NAME, how_to_bring

_BROUGHT = {
    "highspy": "collectives",
    "networkx": "plan",
    "prometheus_client": "metrics",
    "ray": "ray",
    "scipy": "clusters",
    "torch": "collectives",
}
"""The extra that brings a package; `report` brings the others."""
_NEEDED = {"cluster": "clusters", "collectives": "collectives", "plan": "plan"}
"""The extra that a command needs whole."""
_DISTRIBUTIONS = {"yaml": "pyyaml"}
"""Packages whose distribution is called otherwise."""


def lacks_package(command: str, error: ModuleNotFoundError) -> HostError | None:
    """Say what to do where `mltcp COMMAND` lacks a package of ours; None where it isn't one."""
    package = (error.name or "").partition(".")[0]
    name = _DISTRIBUTIONS.get(package, package.replace("_", "-").lower())
    optional = _known().get(name)
    if optional is None:
        return None
    extra = _BROUGHT.get(package, "report") if optional else ""
    if extra in ("report", "plan"):
        extra = _NEEDED.get(command, extra)
    elif (command, package) == ("cluster", "torch"):
        extra = "marl"
    return HostError(
        f"`mltcp {command}` needs the Python package {package}, which is not installed;"
        f" {how_to_bring(extra)}."
    )


def _known() -> dict[str, bool]:
    """Return whether each distribution that ours requires comes with extras only."""
    found: dict[str, bool] = {}
    try:
        requirements = metadata.requires(NAME) or []
    except metadata.PackageNotFoundError:  # sources that were never installed
        requirements = []
    for requirement in requirements:
        name = re.sub("[-_.]+", "-", re.split(r"[^\w.-]", requirement)[0]).lower()
        found[name] = "extra" in requirement and found.get(name, True)
    return found
