"""What was changed on this host, on disk: recorded before the change, so that it can be undone.

A file per attached job, RUN_DIR/attach/job-ID.json, in a folder that only its owner may enter. A
file is replaced whole (written aside, synced, renamed); it is believed only if it is a plain file
of this user that nobody else may write or read, of this boot, and every field in it is valid.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mltcp_tools.backends.base import Job
from mltcp_tools.backends.locks import RUN_DIR

STATE_DIR = RUN_DIR / "attach"


@dataclass(frozen=True)
class SocketRecord:
    """A socket that is attached or was about to be, and what it ran before.

    pid, start_ticks, fd: where it was found (see processes.Process). netns, cookie, inode: see
    sockets.Socket. local, remote: address and port. old: the congestion control before the first
    attach; new: the one given. They are the same where only a tag was set.
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
class JobState:
    """A job attached on this host. backend: the one that has its tags. sockets: by cookie."""

    job: Job
    backend: str
    sockets: tuple[SocketRecord, ...]


class StateFiles:
    """The state files in a folder. Writers hold the lock `attach` (mltcp_tools.backends.locks)."""

    def __init__(self, directory: Path = STATE_DIR) -> None:
        self.directory = directory

    def read(self) -> list[JobState]:
        """All jobs attached since this boot, by id; none where the folder isn't there yet.

        Raises HostError for a folder or file that isn't trusted or valid, with what to do.
        """
        raise NotImplementedError

    def write(self, state: JobState) -> None:
        """Record the job's state; it is on disk when this returns."""
        raise NotImplementedError

    def remove(self, job_id: int) -> None:
        """Forget the job. No error where it isn't recorded."""
        raise NotImplementedError
