# SPDX-License-Identifier: BSD-2-Clause
"""clusters/RESULTS.md: what commands printed, with what made it, so that no table is typed.

`python -m support.cluster_results NAME COMMAND...` runs `mltcp cluster COMMAND...`, or a script of
Python, and puts what it prints into section NAME.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from mltcp_tools import clusters
from mltcp_tools.base.files import replace_file

DOCUMENT = Path(clusters.__file__).parent / "RESULTS.md"


def section(name: str, command: Sequence[str], printed: str) -> str:
    """Return a section, with what made it; traces by their file's name alone."""
    typed = re.sub(r"([a-z]+:|\s|^)[^\s,:]*/", r"\1", " ".join(command))
    made = (
        f"Made by `{typed}`, {datetime.now(UTC):%Y-%m-%d}; mltcp-tools"
        f" {metadata.version('mltcp-tools')}, {os.cpu_count()} CPUs, {platform.machine()}, Python"
        f" {platform.python_version()}."
    )
    body = printed.strip("\n")
    return f"## {name}\n\n{made}\n\n```\n{body}\n```\n"


def put(text: str, name: str, content: str) -> str:
    """Return `text` with the section in the place of the one of that name, or at its end."""
    head, *parts = re.split(r"^## ", text, flags=re.MULTILINE)
    sections = {part.partition("\n")[0]: f"## {part}" for part in parts} | {name: content}
    return "\n\n".join(part.strip() for part in (head, *sections.values())) + "\n"


if __name__ == "__main__":
    name, *command = sys.argv[1:]
    script = command[0].endswith(".py")
    whole = [sys.executable, *([] if script else ["-m", "mltcp_tools.cli.main", "cluster"])]
    printed = subprocess.run(
        [*whole, *command], check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    made = section(name, [*(["python"] if script else ["mltcp", "cluster"]), *command], printed)
    replace_file(DOCUMENT, put(DOCUMENT.read_text(), name, made).encode())
    print(printed, end="")
