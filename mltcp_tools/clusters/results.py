"""RESULTS.md: what commands printed, with what made it, so that no table is typed.

    ## NAME

    <!-- NAME clusters/COMMAND VERSION -->

    Made by `mltcp cluster …`, DATE; mltcp-tools VERSION, HOST.

    ```
    …
    ```

The version is that of what decides on the command's figures (version.py).
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from mltcp_tools.clusters.version import version
from mltcp_tools.errors import UsageError
from mltcp_tools.lab.analysis.published import made_by, put_section

DOCUMENT = Path(__file__).resolve().parent / "RESULTS.md"
_HEAD = """\
# Results of clusters

Each section is what its command printed; `mltcp cluster results NAME -- COMMAND…` makes it again,
and `scripts/results --check` says which were made by another version.
"""


def section(name: str, command: Sequence[str], printed: str) -> str:
    """A section, with what made it."""
    if not re.fullmatch(r"[a-z][a-z0-9-]*", name):
        raise UsageError(
            f"{name!r} can't be a section's name: lower-case letters, digits, hyphens."
        )
    typed = " ".join(
        Path(word).name if "/" in word and ":" not in word else word for word in command
    )
    typed = re.sub(r"([a-z]+:)[^\s,]*/", r"\1", typed)
    made = (
        f"Made by `mltcp cluster {typed}`, {datetime.now(UTC):%Y-%m-%d}; mltcp-tools"
        f" {metadata.version('mltcp-tools')}, {os.cpu_count()} CPUs, {platform.machine()},"
        f" Python {platform.python_version()}."
    )
    body = printed.strip("\n")
    shown = body if body.startswith("|") else f"```\n{body}\n```"
    comment = made_by(name, f"clusters/{command[0]}", version(command[0]))
    return f"## {name}\n\n{comment}\n\n{made}\n\n{shown}\n"


def put(text: str, name: str, content: str) -> str:
    """`text` with the section in the place of the one of that name, or at its end."""
    return put_section(text or _HEAD, name, content)
