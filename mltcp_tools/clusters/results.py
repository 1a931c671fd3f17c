"""RESULTS.md: what commands printed, with what made it, so that no table is typed.

    ## NAME

    Made by `mltcp cluster …`, DATE; mltcp-tools VERSION, clusters VERSION, HOST.

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

from mltcp_tools.base.errors import UsageError
from mltcp_tools.clusters.version import version

DOCUMENT = Path(__file__).resolve().parent / "RESULTS.md"
_HEAD = """\
# Results of clusters

Each section is what its command printed; `mltcp cluster results NAME -- COMMAND…` makes it again.
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
        f" {metadata.version('mltcp-tools')}, clusters {version(command[0])},"
        f" {os.cpu_count()} CPUs, {platform.machine()}, Python {platform.python_version()}."
    )
    body = printed.strip("\n")
    shown = body if body.startswith("|") else f"```\n{body}\n```"
    return f"## {name}\n\n{made}\n\n{shown}\n"


def put(text: str, name: str, content: str) -> str:
    """`text` with the section in the place of the one of that name, or at its end."""
    head, *parts = re.split(r"^## ", text or _HEAD, flags=re.MULTILINE)
    sections = {part.partition("\n")[0]: f"## {part}" for part in parts} | {name: content}
    return "\n\n".join(part.strip() for part in (head, *sections.values())) + "\n"
