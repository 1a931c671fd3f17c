# SPDX-License-Identifier: BSD-2-Clause
"""The package's extras, as pyproject.toml says them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

_PROJECT = Path(__file__).parents[2] / "pyproject.toml"


def optional() -> dict[str, set[str]]:
    """Map each extra to the distributions that it brings, those of extras it includes among them.

    Without `dev`: whoever develops has them all.
    """
    declared = tomllib.loads(_PROJECT.read_text())["project"]["optional-dependencies"]

    def brought(extra: str) -> set[str]:
        found = set()
        for requirement in declared[extra]:
            name = re.match(r"[\w.-]+", requirement)[0].lower()
            others = re.search(r"\[(.*)\]", requirement)
            if name == "mltcp-tools":
                found.update(*(brought(each.strip()) for each in others[1].split(",")))
            else:
                found.add(name)
        return found

    return {extra: brought(extra) for extra in declared if extra != "dev"}
