#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Prints the lines of each part of the project against its budget ([tool.mltcp.budget] in
pyproject.toml). The exit code is 1 where a part has more.

Counted are tracked files that people write; documentation, experiments' matrices and tables aren't.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_NOT_COUNTED = re.compile(r"\.(md|png|yaml|1|csv)$|man/")
_PARTS = {
    **dict.fromkeys(("cli", "doctor", "hooks.py"), "front"),
    **dict.fromkeys(("collectives", "clusters"), "companions"),
    **{name: name for name in ("kernel", "live", "lab")},
}
"""The part of the project that a name in the package belongs to; the others are `base`."""


def part_of(path: str) -> str | None:
    """The part that a tracked file counts for; None for one that isn't counted."""
    top = path.partition("/")[0]
    if top == "tests":
        return "tests" if path.endswith((".py", ".c", ".h", ".sh")) else None
    if top not in {"kmod", "bpf", "mltcp_tools", "scripts", "vagrant"} or _NOT_COUNTED.search(path):
        return None
    return _PARTS.get(path.split("/")[1], "base") if top == "mltcp_tools" else top


def count(root: Path) -> Counter[str]:
    """The lines of each part in a checkout."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, check=True)
    lines: Counter[str] = Counter()
    for path in listed.stdout.decode().split("\0"):
        if (part := part_of(path)) is not None and (root / path).is_file():
            lines[part] += (root / path).read_bytes().count(b"\n")
    return lines


def main(root: Path = ROOT) -> int:
    """Print a line for each part; the exit code."""
    budget = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["mltcp"]["budget"]
    lines = count(root)
    lines["product"] = lines.total() - lines["tests"]
    for part in sorted({*budget, *lines}):
        over = lines[part] > budget.get(part, 0)
        print(f"{part:12}{lines[part]:8,} of {budget.get(part, 0):8,}{'  too many' * over}")
    return int(any(lines[part] > budget.get(part, 0) for part in lines))


if __name__ == "__main__":
    sys.exit(main())
