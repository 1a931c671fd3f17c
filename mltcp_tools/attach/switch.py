"""Make the sockets of running processes flows of a job, and put them back.

The socket is borrowed from its process (pidfd_getfd), is checked to be the one that was meant, is
switched and tagged, and is let go at once. What it ran before is on disk before it is touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mltcp_tools.attach.sockets import Socket
from mltcp_tools.attach.state import SocketRecord, StateFiles
from mltcp_tools.backends.base import Backend, Job

RECOMMENDED = "mltcp"
"""The congestion control that attach gives unless told otherwise."""


@dataclass(frozen=True)
class Change:
    """What became of one socket. old, new: congestion control before and after, as read back.

    outcome: `switched`; `tagged` (it ran that congestion control already); `planned` (a dry run);
    `gone` (the socket or its process went in between, which is no error); `failed` (it is as it
    was, and `reason` says why not).
    """

    socket: Socket
    job: str
    old: str
    new: str
    outcome: str
    reason: str


@dataclass(frozen=True)
class Restoration:
    """What became of one recorded socket.

    outcome: `restored`; `gone` (closed since, nothing to restore); `left` (somebody gave it another
    congestion control since, which stays); `failed` (it stays recorded, and `reason` says why).
    """

    record: SocketRecord
    job: str
    outcome: str
    reason: str


def attach(
    sockets: Sequence[Socket],
    job: Job,
    congestion_control: str,
    backend: Backend,
    dry_run: bool = False,
    files: StateFiles | None = None,
) -> list[Change]:
    """Give the sockets to the job under the congestion control; say what became of each.

    The job is set in the backend, and attached sockets of another job move over. A socket that
    several processes share is changed once. On any error that is not a single socket's nothing is
    changed: HostError names the capability or setting that is missing, MltcpError says when the
    congestion control isn't loaded. dry_run makes the same checks and changes nothing.
    """
    raise NotImplementedError


def detach(
    *, job: str | None = None, pid: int | None = None, files: StateFiles | None = None
) -> list[Restoration]:
    """Put back the sockets of a job, or of a process, or all; say what became of each.

    A job without recorded sockets left is deleted from its backend, if that still has it, and its
    state file goes. Works as well when the backend is unloaded, or whoever attached has crashed.
    Raises UsageError when no such job or process is attached, HostError as `attach` does.
    """
    raise NotImplementedError
