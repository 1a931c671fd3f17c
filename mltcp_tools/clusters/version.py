"""The version of what decides on figures: a digest of engine, rules, policies, and what describes
jobs and networks; tables and sweeps say which one made them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from mltcp_tools.kernel.native import csources

_FOLDER = Path(__file__).resolve().parent
_DECIDE = (
    "engine/*.[ch]",
    "policies/*.py",
    "fapes/*.py",
    "marl/*.py",
    "own/replay.py",
    "own/ask.py",
)
_ALONE = (
    *("as_flows", "interference", "models", "outcome", "pairs", "question", "rules", "simulate"),
    *("topology", "troubles", "turns", "validate", "workload"),
)


@cache
def version() -> str:
    """Eight hexadecimal digits."""
    files = [file for pattern in _DECIDE for file in _FOLDER.glob(pattern)]
    return csources.digest([*files, *(_FOLDER / f"{name}.py" for name in _ALONE)])[:8]
