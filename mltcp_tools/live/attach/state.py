# SPDX-License-Identifier: BSD-2-Clause
"""The changes made on this host, on disk: recorded before the change, so that it can be undone.

A file per attached job, RUN_DIR/attach/job-ID.json, in a folder that only its owner may enter (see
kernel/host/state_dir). It is believed only if it is of this boot, and each field of its type.
"""

from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mltcp_tools.base.errors import UsageError
from mltcp_tools.kernel.backends import BACKENDS
from mltcp_tools.kernel.backends.base import Job, JobParams
from mltcp_tools.kernel.host.locks import RUN_DIR
from mltcp_tools.kernel.host.state_dir import SIZE_MAX, TrustedFolder, boot_id, distrust
from mltcp_tools.live.attach.typed import parsed

STATE_DIR = RUN_DIR / "attach"

LOCK = "attach"
"""Name of the lock (mltcp_tools.kernel.host.locks) of whoever changes sockets or state files."""

VERSION = 1
"""Of the files' format; one of another version is refused."""

_FILE_NAME = re.compile(r"job-([1-9][0-9]{0,9})\.json")


@dataclass(frozen=True, slots=True)
class SocketRecord:
    """A socket that is attached or was about to be, and what it ran before.

    pid, start_ticks, fd: where it was found (see processes.Process); pid 0, with inode 0, where no
    process was asked. netns, cookie, inode: see sockets.Socket. local, remote: address and port.
    old: the congestion control before the first attach; new: the one given. They are the same
    where only a tag was set.
    """

    pid: int
    start_ticks: int
    fd: int
    netns: int
    inode: int
    cookie: int
    local: tuple[str, int]
    remote: tuple[str, int]
    old: str
    new: str


@dataclass(frozen=True)
class AttachedJob:
    """A job attached on this host. backend: the one that has its tags. sockets: each one once."""

    job: Job
    backend: str
    sockets: tuple[SocketRecord, ...]


class StateFiles:
    """The state files in a folder. Whoever writes or removes holds LOCK."""

    def __init__(self, directory: Path = STATE_DIR) -> None:
        self.directory = directory
        self._folder = TrustedFolder(directory)

    def read(self) -> list[AttachedJob]:
        """All jobs attached since this boot, by id; none where the folder isn't there yet.

        Raises HostError for a folder or file that isn't trusted or valid, with what to do.
        """
        found = [self._read_file(name) for name in self._folder.names()]
        return sorted((each for each in found if each), key=lambda each: each.job.id)

    def write(self, state: AttachedJob) -> None:
        """Record the job's state; it is on disk when this returns."""
        head = {"version": VERSION, "boot_id": boot_id()}
        self._folder.write(_file_name(state.job.id), json.dumps(head | dataclasses.asdict(state)))

    def remove(self, job_id: int) -> None:
        """Forget the job. No error where it isn't recorded."""
        self._folder.remove(_file_name(job_id))

    def _read_file(self, name: str) -> AttachedJob | None:
        """The state in a file; None for what is not a state file, or of another boot."""
        match = _FILE_NAME.fullmatch(name)
        if match is None:
            return None
        try:
            state = self._folder.parsed(name, _parse)
            if state is not None and state.job.id != int(match[1]):
                raise ValueError(f"it is about job {state.job.id}")
        except (ValueError, RecursionError, UsageError) as error:
            raise distrust(self.directory / name, str(error).rstrip(".")) from None
        return state


class KnownFiles(StateFiles):
    """The same files while LOCK is held: as nobody else writes them, they are read once."""

    def __init__(self, files: StateFiles) -> None:
        super().__init__(files.directory)
        self._known = {each.job.id: each for each in super().read()}

    def read(self) -> list[AttachedJob]:
        return sorted(self._known.values(), key=lambda each: each.job.id)

    def write(self, state: AttachedJob) -> None:
        super().write(state)
        self._known[state.job.id] = state

    def remove(self, job_id: int) -> None:
        super().remove(job_id)
        self._known.pop(job_id, None)


def _file_name(job_id: int) -> str:
    return f"job-{job_id}.json"


def _drop_former(document: dict[str, Any]) -> None:
    """Leave out parameters of the job that an earlier build had."""
    job = document.get("job")
    params = job.get("params") if isinstance(job, dict) else None
    if isinstance(params, dict):
        for name in params.keys() - {each.name for each in dataclasses.fields(JobParams)}:
            del params[name]


def _parse(data: bytes) -> AttachedJob | None:
    """The state in a file's content; None for one of another boot. ValueError or UsageError says
    what is wrong."""
    if len(data) > SIZE_MAX:
        raise ValueError(f"it is larger than {SIZE_MAX} bytes")
    document = json.loads(data)
    if not isinstance(document, dict) or document.pop("version", None) != VERSION:
        raise ValueError(f"it has another version, not {VERSION}")
    if document.pop("boot_id", None) != boot_id():
        return None
    _drop_former(document)
    state = parsed(AttachedJob, document)
    if state.backend not in BACKENDS:
        raise ValueError(f"there is no backend {state.backend!r}")
    return state
