"""The version of what decides on figures: engine, rules, policies, what describes jobs and
networks, and a command's own files; tables and sweeps say which one made them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from mltcp_tools.kernel.native.source_hash import version_of

_FOLDER = Path(__file__).resolve().parent
_ALL = (
    *("engine/*.[ch]", "policies/*.py", "interference.py", "models.py", "outcome.py", "pairs.py"),
    *("rules.py", "simulate.py", "topology.py", "troubles.py", "time_shift.py", "view.py"),
    "workload.py",
)
_OWN = {
    "ask": ("own/ask.py", "own/replay.py"),
    "fapes": ("fapes/*.py", "traces.py"),
    "marl": ("marl/*.py",),
    "replay": ("own/replay.py",),
    "run": ("traces.py",),
}


@cache
def version(command: str) -> str:
    """Hexadecimal digits, of what decides on the figures of `mltcp cluster COMMAND`."""
    patterns = (*_ALL, *_OWN.get(command, ()))
    files = [file for pattern in patterns for file in _FOLDER.glob(pattern)]
    return version_of(files)
