# SPDX-License-Identifier: BSD-2-Clause
"""Sockets are borrowed from their processes (pidfd_getfd), switched, and let go at once.

Each is checked to be the one that was meant. This takes CAP_SYS_PTRACE for processes of others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from mltcp_tools.base.errors import HostError, MltcpError
from mltcp_tools.kernel.backends.base import Backend
from mltcp_tools.kernel.backends.kmod import KmodBackend
from mltcp_tools.kernel.congestion_controls import NAMES
from mltcp_tools.live.attach import privileges
from mltcp_tools.live.attach.access import Change, SocketAccess, SocketState, SwitchRequest
from mltcp_tools.live.attach.pidfd import (
    Gone,
    borrowed,
    check_can_send,
    congestion_control,
    put_back,
    set_congestion_control,
)
from mltcp_tools.live.attach.processes import processes
from mltcp_tools.live.attach.sockets import Socket, holders
from mltcp_tools.live.attach.state import SocketRecord


class ViaPidfd(SocketAccess):
    """backend: the one that has the tags; None where none is loaded any more."""

    def __init__(self, backend: Backend | None) -> None:
        self._backend = backend

    def look(self, sockets: Sequence[Socket]) -> dict[int, SocketState]:
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

    def _look(self, sock: Socket) -> SocketState:
        try:
            with borrowed(sock.pid, sock.start_ticks, sock.fd, sock.cookie) as ours:
                check_can_send(ours)
                return SocketState(congestion_control(ours))
        except Gone as gone:
            return SocketState(sock.congestion_control, str(gone))
        except PermissionError as error:
            raise privileges.refused(sock.process) from error

    def give(self, requests: Sequence[SwitchRequest]) -> dict[int, Change]:
        return {each.socket.cookie: self._give(each) for each in requests}

    def _give(self, request: SwitchRequest) -> Change:
        sock, now = request.socket, request.old
        assert self._backend is not None
        try:
            with borrowed(sock.pid, sock.start_ticks, sock.fd, sock.cookie) as ours:
                if (present := congestion_control(ours)) != request.old:
                    return request.overtaken(present)
                try:
                    set_congestion_control(ours, request.new)
                    self._backend.tag(ours.fileno(), request.job.id)
                except BaseException:
                    now = request.new
                    if congestion_control(ours) != request.old:
                        put_back(ours, request.old)
                    now = request.old
                    check_can_send(ours)
                    raise
        except Gone as gone:
            return request.gone(str(gone))
        except PermissionError:  # it has changed its user since
            return request.failed(privileges.reason_for_refusal())
        except (MltcpError, OSError) as error:
            return request.failed(str(error).rstrip("."), now)
        return request.done()

    def tags(self, sockets: Sequence[Socket | SocketRecord]) -> Mapping[int, int]:
        assert self._backend is not None
        return {flow.cookie: flow.job_id for flow in self._backend.flows() if flow.job_id}

    def restore(self, requests: Sequence[SwitchRequest]) -> dict[int, Change]:
        done = {each.socket.cookie: self._restore(each) for each in requests}
        missing = [each for each in requests if done[each.socket.cookie].outcome == "gone"]
        inodes = {each.socket.inode for each in missing}
        found = holders(inodes, processes()) if missing else {}
        for each in missing:
            record = each.socket
            if record.inode in found and isinstance(record, SocketRecord):
                holder, fd = found[record.inode]
                record = replace(record, pid=holder.pid, start_ticks=holder.start_ticks, fd=fd)
                done[record.cookie] = self._restore(replace(each, socket=record))
        return done

    def _restore(self, request: SwitchRequest) -> Change:
        sock, now = request.socket, ""
        try:
            with borrowed(sock.pid, sock.start_ticks, sock.fd, sock.cookie) as ours:
                now = congestion_control(ours)
                if was_ours := now in NAMES and now != request.new:
                    now = put_back(ours, request.new)
                if self._backend and now in NAMES:  # another one would have taken the tag
                    self._backend.untag(ours.fileno())
        except Gone as gone:
            return request.gone(str(gone))
        except PermissionError:
            reason = f"process {sock.pid} is out of reach: {privileges.reason_for_refusal()}"
            return request.failed(reason, now)
        except (MltcpError, OSError) as error:
            return request.failed(str(error).rstrip("."), now)
        return request.restored(now, was_ours)
