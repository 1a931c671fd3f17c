# SPDX-License-Identifier: BSD-2-Clause
"""The interface by which sockets of other processes are looked at, switched and put back.

With BPF a program in the kernel does it (via_bpf_iter), and no process is touched. Elsewhere each
socket is borrowed from a process that holds it (via_pidfd).
"""

from __future__ import annotations

import errno
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mltcp_tools.kernel.backends.base import Job
from mltcp_tools.kernel.congestion_controls import asked_as
from mltcp_tools.live.attach.pidfd import refusal
from mltcp_tools.live.attach.sockets import Socket
from mltcp_tools.live.attach.state import SocketRecord

DONE = ("switched", "tagged")
"""Outcomes of a socket that is attached."""


@dataclass(frozen=True)
class SocketState:
    """The state of a socket. name: what it runs. gone: why it can't send
    any more (part of a sentence), else empty.

    job: id of the job that it is tagged with; 0 where it isn't, or where that isn't known. first:
    what it ran before it was attached, where the kernel remembers it, else empty.
    """

    name: str
    gone: str = ""
    job: int = 0
    first: str = ""


@dataclass(frozen=True)
class Change:
    """The outcome for a socket. old, new: congestion control before and after, as read back.

    outcome: of an attach `switched`; `tagged` (it ran that congestion control already); `planned`
    (a dry run); `taken` (another job has it, and keeps it). Of a detach `restored`; `left`
    (somebody has switched it since). Of both `gone` (it closed, which is no error; new is empty)
    and `failed` (it runs `new` still, and `reason` says why).
    before: the job that it belonged to, empty without any. first: what it ran before it was first
    attached, empty where it isn't attached.
    """

    socket: Socket | SocketRecord
    job: str
    old: str
    new: str
    outcome: str
    reason: str = ""
    before: str = ""
    first: str = ""


@dataclass(frozen=True)
class SwitchRequest:
    """A request that a job's socket run `new`. old: what it runs, as far as is known."""

    socket: Socket | SocketRecord
    job: Job
    old: str
    new: str

    def done(self) -> Change:
        """It was attached."""
        outcome = "tagged" if self.old == self.new else "switched"
        return Change(self.socket, self.job.name, self.old, self.new, outcome)

    def restored(self, now: str, was_ours: bool) -> Change:
        """It was to be put back, and runs `now`. was_ours: it ran one of MLTCP's until then."""
        outcome, reason = "restored", ""
        if asked_as(now) != asked_as(self.new):
            if was_ours:
                reason = refusal(errno.EOPNOTSUPP, self.new, "")
            else:
                outcome, reason = "left", f"somebody else has since switched it to {now}"
        return Change(self.socket, self.job.name, self.old, now, outcome, reason)

    def gone(self, reason: str) -> Change:
        """It is not there any more."""
        return Change(self.socket, self.job.name, self.old, "", "gone", reason)

    def failed(self, reason: str, now: str | None = None) -> Change:
        """It couldn't be done. now: what it runs, if it isn't what it ran before."""
        new = self.old if now is None else now
        return Change(self.socket, self.job.name, self.old, new, "failed", reason)

    def overtaken(self, now: str) -> Change:
        """Somebody switched it before us."""
        return self.failed(f"somebody else just switched it to {now}")


class SocketAccess(ABC):
    """A way to reach sockets. All answers are by cookie."""

    @abstractmethod
    def look(self, sockets: Sequence[Socket]) -> dict[int, SocketState]:
        """Return the state of each. HostError where this process may not reach them."""

    @abstractmethod
    def give(self, requests: Sequence[SwitchRequest]) -> dict[int, Change]:
        """Switch and tag each of these, or leave it as it was."""

    @abstractmethod
    def tags(self, sockets: Sequence[Socket | SocketRecord]) -> Mapping[int, int]:
        """The id of each tagged one's job, as the kernel shows it now."""

    @abstractmethod
    def restore(self, requests: Sequence[SwitchRequest]) -> dict[int, Change]:
        """Put each back and take its tag, unless somebody else has switched it since."""
