# SPDX-License-Identifier: BSD-2-Clause
"""A follower's knowledge of its jobs, for other commands to show: a file that it renews.

RUN_DIR/followers/PID.json, written whole, readable by everybody. A file is believed only if it is a
plain file of root or of this user that others may not write, and its writer still runs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import stat
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from mltcp_tools.base.errors import MltcpError
from mltcp_tools.base.files import replace_file
from mltcp_tools.kernel.host.locks import RUN_DIR
from mltcp_tools.live.attach.processes import PROC, is_running, process
from mltcp_tools.live.attach.typed import parsed
from mltcp_tools.live.observe.view import JobView

BOARDS = RUN_DIR / "followers"
SCHEMA = "mltcp-followed/1"
FRESH_S = 60.0
"""A follower's state is renewed every second, with many flows every half minute; one this old is of
a follower that hangs."""

_LARGEST = 1 << 22


class FollowerState:
    """The file of this process. A context manager; leaving it removes the file."""

    def __init__(self, folder: Path = BOARDS) -> None:
        self._path = folder / f"{os.getpid()}.json"
        self._start = process(os.getpid()).start_ticks

    def __enter__(self) -> FollowerState:
        folder = self._path.parent
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        forget_killed(folder)
        self.write([])
        return self

    def __exit__(self, *_: object) -> None:
        self._path.unlink(missing_ok=True)

    def write(
        self,
        views: Sequence[JobView],
        ended: Iterable[JobView] = (),
        overridden: Sequence[str] = (),
    ) -> None:
        """Show these jobs, those that have ended of late, and a sentence on each of those whose
        congestion control another program sets.

        A reader finds the old ones or the new ones, never half of them.
        """
        document = {
            "schema": SCHEMA,
            "pid": os.getpid(),
            "start_ticks": self._start,
            "written_s": time.monotonic(),
            "jobs": [dataclasses.asdict(view) for view in views],
            "ended": [dataclasses.asdict(view) for view in ended],
            "overridden": [*overridden],
        }
        replace_file(self._path, json.dumps(document).encode())


def read_follower_states(folder: Path = BOARDS) -> dict[int, JobView]:
    """The jobs that living followers show, by id; where two show one, the one that knows more."""
    found: dict[int, JobView] = {}
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else []:
        for view in _read(path):
            known = found.get(view.id)
            if known is None or (known.metadata is None and view.metadata is not None):
                found[view.id] = view
    return found


def read_ended(folder: Path = BOARDS) -> list[JobView]:
    """The jobs that living followers saw end of late."""
    paths = sorted(folder.glob("*.json")) if folder.is_dir() else []
    return [view for path in paths for view in _read(path, "ended")]


def read_overridden(folder: Path = BOARDS) -> list[str]:
    """Return what living followers say of other programs that set congestion control."""
    paths = sorted(folder.glob("*.json")) if folder.is_dir() else []
    return [str(each) for path in paths for each in _document(path).get("overridden", [])]


def killed_followers(folder: Path = BOARDS) -> list[int]:
    """Pids of followers that ended without taking leave, since the last one began."""
    paths = sorted(folder.glob("*.json")) if folder.is_dir() else []
    return [int(p.stem) for p in paths if p.stem.isdecimal() and not _writer_runs(p)]


def forget_killed(folder: Path = BOARDS) -> None:
    """Remove the files of writers that have ended without doing so."""
    for path in folder.glob("*.json") if folder.is_dir() else []:
        if not _writer_runs(path):
            with contextlib.suppress(OSError):
                path.unlink()


def _read(path: Path, which: str = "jobs") -> list[JobView]:
    """The jobs of one file, or the `ended` ones; none when it isn't to be believed."""
    with contextlib.suppress(ValueError, TypeError):
        return [parsed(JobView, entry) for entry in _document(path).get(which, [])]
    return []


def _document(path: Path) -> dict[str, Any]:
    """The content of one file; empty when it isn't to be believed."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError, MltcpError):
        with open(path, "rb", opener=_no_link) as file:
            info = os.fstat(file.fileno())
            if not stat.S_ISREG(info.st_mode) or info.st_uid not in (0, os.geteuid()):
                return {}
            if info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                return {}
            document: dict[str, Any] = json.loads(file.read(_LARGEST))
        if document["schema"] != SCHEMA or f"{document['pid']}.json" != path.name:
            return {}
        age_s = time.monotonic() - document["written_s"]
        if not 0 <= age_s <= FRESH_S:
            return {}
        if process(document["pid"]).start_ticks != document["start_ticks"]:
            return {}
        return document
    return {}


def _writer_runs(path: Path) -> bool:
    """Return whether the process that the file is called after runs, and not another with its
    pid.
    """
    if not (path.stem.isdecimal() and (PROC / path.stem).exists()):
        return False
    with (
        contextlib.suppress(OSError, ValueError, TypeError, KeyError),
        open(path, "rb", opener=_no_link) as file,
    ):
        return is_running(int(path.stem), int(json.loads(file.read(_LARGEST))["start_ticks"]))
    return True  # nobody's that could be told


def _no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
