"""RESULTS.md: what commands printed, with what made it, so that no table is typed.

    ## NAME

    <!-- NAME clusters DIGEST -->

    Made by `mltcp cluster …`, DATE; mltcp-tools VERSION, HOST.

    ```
    …
    ```

The digest is of what decides on the command's figures (version.py). `stale` names the sections
that other versions of these made.
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

DOCUMENT = Path(__file__).resolve().parent / "RESULTS.md"
_HEAD = """\
# Results of clusters

Each section is what its command printed; `mltcp cluster results NAME -- COMMAND…` makes it again,
and `mltcp cluster results --check` says which were made by another version.
"""
_SECTION = re.compile(
    r"^## (?P<name>.+)\n\n<!-- (?P=name) clusters (?P<digest>[0-9a-f]+) -->\n\n"
    r"Made by `mltcp cluster (?P<command>[a-z]+)",
    re.M,
)


def stale(text: str) -> list[str]:
    """Names of the sections that another version made."""
    return [
        each["name"]
        for each in _SECTION.finditer(text)
        if each["digest"] != version(each["command"])
    ]


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
    return f"## {name}\n\n<!-- {name} clusters {version(command[0])} -->\n\n{made}\n\n{shown}\n"


def put(text: str, name: str, content: str) -> str:
    """`text` with the section in the place of the one of that name, or at its end."""
    parts = re.split(r"(?m)^(?=## )", text or _HEAD)
    kept = [part.rstrip("\n") + "\n" for part in parts]
    for place, part in enumerate(kept):
        if part.startswith(f"## {name}\n"):
            kept[place] = content
            break
    else:
        kept.append(content)
    return "\n".join(kept)
