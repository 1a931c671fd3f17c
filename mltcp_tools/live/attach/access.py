# SPDX-License-Identifier: BSD-2-Clause
"""The interface by which sockets of other processes are looked at, switched and put back.

Where BPF is, an iterator in the kernel does it (by_iterator): no process is touched, none need be
open to us. Elsewhere each socket is borrowed from a process that holds it (by_borrowing).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mltcp_tools.live.attach.sockets import Socket
from mltcp_tools.live.attach.state import SocketRecord


@dataclass(frozen=True)
class Sight:
    """The state of a socket. gone: why it isn't there any more, as part of a sentence; empty if it
    is.

    job: id of the job that it is tagged with; 0 where it isn't, or where that isn't known. first:
    what it ran before it was attached, where the kernel remembers it, else empty.
    """

    name: str
    gone: str = ""
    job: int = 0
    first: str = ""


@dataclass(frozen=True)
class Gift:
    """A socket, what it is expected to run, what it is to be given, and the id of its job."""

    socket: Socket
    expected: str
    name: str
    job: int


@dataclass(frozen=True)
class Result:
    """The outcome for a socket: `done`, `gone`, `left` (somebody else has switched it) or `failed`.

    now: what it runs, as read back; empty where it is gone. reason: as part of a sentence. changed:
    whether it may run something else than before, though that failed.
    """

    outcome: str
    now: str = ""
    reason: str = ""
    changed: bool = False


class Reach(ABC):
    """A way to reach sockets."""

    @abstractmethod
    def look(self, sockets: Sequence[Socket]) -> dict[int, Sight]:
        """Return what each of these is, by cookie. HostError where this process may not reach
        them.
        """

    @abstractmethod
    def give(self, gifts: Sequence[Gift]) -> dict[int, Result]:
        """Switch and tag each of these, or leave it as it was, by cookie."""

    @abstractmethod
    def tags(self, sockets: Sequence[Socket]) -> Mapping[int, int]:
        """The id of each tagged one's job by cookie, as the kernel shows it now."""

    @abstractmethod
    def restore(self, records: Sequence[SocketRecord]) -> dict[int, Result]:
        """Put each back to what is on record and take its tag, by cookie, unless somebody else has
        switched it since."""
