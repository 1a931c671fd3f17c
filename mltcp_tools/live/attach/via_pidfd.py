# SPDX-License-Identifier: BSD-2-Clause
"""Sockets are borrowed from their processes (pidfd_getfd), switched, and let go at once.

Each is checked to be the one that was meant. This takes CAP_SYS_PTRACE for processes of others.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from mltcp_tools.base.errors import HostError, MltcpError
from mltcp_tools.kernel.backends.base import Backend
from mltcp_tools.kernel.backends.kmod import KmodBackend
from mltcp_tools.kernel.congestion_controls import NAMES, asked_as
from mltcp_tools.live.attach import privileges
from mltcp_tools.live.attach.access import Gift, Reach, Result, Sight
from mltcp_tools.live.attach.pidfd import (
    Gone,
    borrowed,
    check_can_send,
    congestion_control,
    put_back,
    refusal,
    set_congestion_control,
)
from mltcp_tools.live.attach.processes import Process, processes
from mltcp_tools.live.attach.sockets import Socket, holders
from mltcp_tools.live.attach.state import SocketRecord


class Borrowing(Reach):
    """backend: the one that has the tags; None where none is loaded any more."""

    def __init__(self, backend: Backend | None) -> None:
        self._backend = backend

    def look(self, sockets: Sequence[Socket]) -> dict[int, Sight]:
        for owner in {each.process for each in sockets}:
            privileges.require_over_network(owner)
        tags = self._tags_by_rules()
        return {
            each.cookie: replace(self._look(each), job=tags.get(each.cookie, 0)) for each in sockets
        }

    def _tags_by_rules(self) -> Mapping[int, int]:
        """The tags, where the kernel gives any by itself, of which nothing is on record."""
        if isinstance(self._backend, KmodBackend):
            with suppress(HostError):  # only root of the host may ask
                if self._backend.rules():
                    return self.tags([])
        return {}

    def _look(self, sock: Socket) -> Sight:
        owner = sock.process
        try:
            with borrowed(owner.pid, owner.start_ticks, sock.fd, sock.cookie) as ours:
                check_can_send(ours)
                return Sight(congestion_control(ours))
        except Gone as gone:
            return Sight(sock.congestion_control, str(gone))
        except PermissionError as error:
            raise privileges.refused(owner) from error

    def give(self, gifts: Sequence[Gift]) -> dict[int, Result]:
        return {each.socket.cookie: self._give(each) for each in gifts}

    def _give(self, gift: Gift) -> Result:
        sock, owner = gift.socket, gift.socket.process
        changed = True
        assert self._backend is not None
        try:
            with borrowed(owner.pid, owner.start_ticks, sock.fd, sock.cookie) as ours:
                if (present := congestion_control(ours)) != gift.expected:
                    return Result("failed", present, switched_to(present))
                try:
                    set_congestion_control(ours, gift.name)
                    self._backend.tag(ours.fileno(), gift.job)
                except BaseException:
                    if congestion_control(ours) != gift.expected:
                        put_back(ours, gift.expected)
                    changed = False
                    check_can_send(ours)
                    raise
        except Gone as gone:
            return Result("gone", reason=str(gone))
        except PermissionError:  # it has changed its user since
            return Result("failed", reason=privileges.reason_for_refusal())
        except (MltcpError, OSError) as error:
            return Result("failed", reason=str(error).rstrip("."), changed=changed)
        return Result("done", gift.name)

    def tags(self, sockets: Sequence[Socket]) -> Mapping[int, int]:
        assert self._backend is not None
        return {flow.cookie: flow.job_id for flow in self._backend.flows() if flow.job_id}

    def restore(self, records: Sequence[SocketRecord]) -> dict[int, Result]:
        done = {each.cookie: self._restore(each) for each in records}
        missing = {each.inode for each in records if done[each.cookie].outcome == "gone"}
        found = holders(missing, processes()) if missing else {}
        for each in records:
            if done[each.cookie].outcome == "gone" and each.inode in found:
                done[each.cookie] = self._restore(_held_by(each, *found[each.inode]))
        return done

    def _restore(self, record: SocketRecord) -> Result:
        now = ""
        try:
            with borrowed(record.pid, record.start_ticks, record.fd, record.cookie) as ours:
                now = congestion_control(ours)
                if taken := now in NAMES and now != record.old:
                    now = put_back(ours, record.old)
                if self._backend and now in NAMES:  # another one would have taken the tag
                    self._backend.untag(ours.fileno())
        except Gone as gone:
            return Result("gone", reason=str(gone))
        except PermissionError:
            reason = f"process {record.pid} is out of reach: {privileges.reason_for_refusal()}"
            return Result("failed", now, reason)
        except (MltcpError, OSError) as error:
            return Result("failed", now, str(error).rstrip("."))
        return taken_back(taken, now, record.old)


def taken_back(taken: bool, now: str, old: str) -> Result:
    """Return what it means that a socket runs `now`, which was to be put back to `old`.

    taken: it was; else it ran nothing of ours.
    """
    if asked_as(now) == asked_as(old):
        return Result("done", now)
    return Result("done", now, refusal(errno.EOPNOTSUPP, old, "")) if taken else Result("left", now)


def switched_to(name: str) -> str:
    """Return why a socket is left alone; a part of a sentence."""
    return f"somebody else just switched it to {name}"


def _held_by(record: SocketRecord, process: Process, fd: int) -> SocketRecord:
    return replace(record, pid=process.pid, start_ticks=process.start_ticks, fd=fd)
