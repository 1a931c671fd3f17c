# SPDX-License-Identifier: BSD-2-Clause
"""The changes made on this host, on disk: recorded before the change, so that it can be undone.

A file per attached job, RUN_DIR/attach/job-ID.json, in a folder that only its owner may enter (see
host.trusted). It is believed only if it is of this boot, and every field in it is valid.
"""

from __future__ import annotations

import dataclasses
import json
import re
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mltcp_tools.base.errors import UsageError
from mltcp_tools.kernel.backends import BACKENDS
from mltcp_tools.kernel.backends.base import Job, JobParams
from mltcp_tools.kernel.host.locks import RUN_DIR
from mltcp_tools.kernel.host.state_dir import SIZE_MAX, TrustedFolder, boot_id, distrust
from mltcp_tools.live.attach.processes import PID_MAX

STATE_DIR = RUN_DIR / "attach"

LOCK = "attach"
"""Name of the lock (mltcp_tools.kernel.host.locks) of whoever changes sockets or state files."""

VERSION = 1
"""Of the files' format; one of another version is refused."""

_FILE_NAME = re.compile(r"job-([1-9][0-9]{0,9})\.json")
_CONGESTION_CONTROL = re.compile(r"[A-Za-z0-9_.-]{1,15}")


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


class _Invalid(Exception):
    """The mistake in a file's content."""


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
                raise _Invalid(f"it is about job {state.job.id}")
        except _Invalid as error:
            raise distrust(self.directory / name, str(error)) from None
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


def _parse(data: bytes) -> AttachedJob | None:
    """The state in a file's content; None for one of another boot. Raises _Invalid."""
    if len(data) > SIZE_MAX:
        raise _Invalid(f"it is larger than {SIZE_MAX} bytes")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _Invalid(f"it is not JSON ({error})") from None
    if not isinstance(document, dict) or document.get("version") != VERSION:
        raise _Invalid(f"it has another version, not {VERSION}")
    if document.get("boot_id") != boot_id():
        return None
    top = _object(
        document, version=int, boot_id=str, job=dict, backend=str, sockets=list, where="the file"
    )
    if top["backend"] not in BACKENDS:
        raise _Invalid(f"there is no backend {top['backend']!r}")
    records = tuple(_record(each) for each in top["sockets"])
    if len({record.cookie for record in records}) != len(records):
        raise _Invalid("it has a socket twice")
    return AttachedJob(_job(top["job"]), top["backend"], records)


def _job(value: dict[str, Any]) -> Job:
    job = _object(value, id=int, name=str, params=dict, where="job")
    kinds: dict[str, Any] = {field.name: (int, float) for field in dataclasses.fields(JobParams)}
    kinds |= {"total_bytes": int, "shape": str, "mechanisms": (list, type(None))}
    params = _object(job["params"], where="params", **kinds)
    mechanisms = params["mechanisms"]
    if mechanisms is not None:
        if not all(isinstance(each, str) for each in mechanisms):
            raise _Invalid("its mechanisms aren't names")
        params["mechanisms"] = tuple(mechanisms)
    try:
        return Job(job["id"], job["name"], JobParams(**params))
    except UsageError as error:
        raise _Invalid(str(error).rstrip(".")) from None


def _record(value: object) -> SocketRecord:
    kinds: dict[str, Any] = dict.fromkeys(_RANGES, int)
    kinds |= {"local": list, "remote": list, "old": str, "new": str}
    found = _object(value, where="a socket", **kinds)
    for name, (low, high) in _RANGES.items():
        if not low <= found[name] <= high:
            raise _Invalid(f"a socket's {name} is {found[name]}")
    for name in ("old", "new"):
        if not _CONGESTION_CONTROL.fullmatch(found[name]):
            raise _Invalid(f"a socket's {name} congestion control is {found[name]!r}")
    for name in ("local", "remote"):
        found[name] = _endpoint(found[name])
    return SocketRecord(**found)


_RANGES = {
    "pid": (0, PID_MAX),
    "start_ticks": (0, 2**64 - 1),
    "fd": (0, 2**31 - 1),
    "netns": (1, 2**32 - 1),
    "inode": (0, 2**64 - 1),
    "cookie": (1, 2**64 - 1),
}


def _endpoint(value: list[Any]) -> tuple[str, int]:
    match value:
        case [str(address), int(port)] if 0 <= port <= 65535:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            with suppress(OSError, ValueError):
                return socket.inet_ntop(family, socket.inet_pton(family, address)), port
    raise _Invalid(f"{value!r} is not an address and port")


def _object(value: object, *, where: str, **kinds: Any) -> dict[str, Any]:
    """The value, if it is an object with exactly these fields, each of its kind."""
    if not isinstance(value, dict) or value.keys() != kinds.keys():
        raise _Invalid(f"{where} doesn't have exactly the fields {', '.join(kinds)}")
    for name, kind in kinds.items():
        if isinstance(value[name], bool) or not isinstance(value[name], kind):
            raise _Invalid(f"{name} of {where} is {value[name]!r}")
    return dict(value)
