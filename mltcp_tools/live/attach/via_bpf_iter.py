# SPDX-License-Identifier: BSD-2-Clause
"""Sockets are switched, tagged and put back in the kernel, and no process is touched."""

from __future__ import annotations

import errno
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from mltcp_tools.kernel.backends.bpf import BpfBackend
from mltcp_tools.kernel.backends.bpf_sockets import (
    Action,
    Attached,
    KernelSockets,
    SocketAnswer,
    Wish,
)
from mltcp_tools.kernel.congestion_controls import is_mltcp
from mltcp_tools.kernel.host.diag import TcpSocket, open_diag, tcp_sockets
from mltcp_tools.kernel.host.namespaces import Unreachable, inside
from mltcp_tools.live.attach.access import Change, SocketAccess, SocketState, SwitchRequest
from mltcp_tools.live.attach.pidfd import refusal
from mltcp_tools.live.attach.sockets import CAN_SEND, Socket
from mltcp_tools.live.attach.state import SocketRecord
from mltcp_tools.live.attach.via_pidfd import ViaPidfd

_ENDED = "the connection has ended"
_FEW = 8
"""Processes by which to enter a network namespace."""


class ViaBpfIter(SocketAccess):
    """Through the programs in the kernel; what these don't find is borrowed, if at all.

    A namespace that nothing but a descriptor keeps alive can't be walked through.
    """

    def __init__(self, backend: BpfBackend, kernel: KernelSockets) -> None:
        self._backend = backend
        self._kernel = kernel
        self._pidfd = ViaPidfd(backend if backend.is_present() else None)

    def look(self, sockets: Sequence[Socket]) -> dict[int, SocketState]:
        attached = {each.cookie: each for each in self._kernel.attached()}
        found = {
            each.cookie: self._state(attached[each.cookie])
            for each in sockets
            if each.cookie in attached
        }
        found |= _not_attached([each for each in sockets if each.cookie not in found])
        missing = [each for each in sockets if each.cookie not in found]
        return found | (self._pidfd.look(missing) if missing else {})

    def _state(self, found: Attached) -> SocketState:
        return SocketState(found.now, _gone(found.state), self._tag(found), found.first)

    def _tag(self, found: Attached) -> int:
        """The id of the job of this network namespace that the socket is tagged with; 0: none."""
        job, home = found.tag or (0, None)
        return job if home == self._backend.home else 0

    def give(self, requests: Sequence[SwitchRequest]) -> dict[int, Change]:
        found = self._fulfil(
            (each.socket, Wish(Action.GIVE, each.new, each.old, each.job.id)) for each in requests
        )
        missing = [each for each in requests if each.socket.cookie not in found]
        return {
            each.socket.cookie: _given(each, found[each.socket.cookie])
            for each in requests
            if each.socket.cookie in found
        } | (self._pidfd.give(missing) if missing else {})

    def tags(self, sockets: Sequence[Socket | SocketRecord]) -> Mapping[int, int]:
        cookies = {each.cookie for each in sockets}
        attached = ((each.cookie, self._tag(each)) for each in self._kernel.attached())
        found = {cookie: job for cookie, job in attached if job and cookie in cookies}
        return found if found.keys() == cookies else {**self._pidfd.tags(sockets), **found}

    def restore(self, requests: Sequence[SwitchRequest]) -> dict[int, Change]:
        found = self._fulfil((each.socket, Wish(Action.TAKE, each.new)) for each in requests)
        missing = [each for each in requests if each.socket.cookie not in found and each.socket.pid]
        done = self._pidfd.restore(missing) if missing else {}
        for each in requests:
            cookie = each.socket.cookie
            if cookie in found:
                done[cookie] = _restored(each, found[cookie])
            else:
                done.setdefault(cookie, each.gone("the socket was closed"))
        return done

    def _fulfil(
        self, wishes: Iterable[tuple[Socket | SocketRecord, Wish]]
    ) -> dict[int, SocketAnswer]:
        """Walk through each namespace of these once; one that can't be reached is left out."""
        by_netns: defaultdict[int, list[tuple[Socket | SocketRecord, Wish]]] = defaultdict(list)
        for sock, wish in wishes:
            by_netns[sock.netns].append((sock, wish))
        found: dict[int, SocketAnswer] = {}
        for netns, some in by_netns.items():
            by_cookie = {sock.cookie: wish for sock, wish in some}
            pids = sorted({sock.pid for sock, _ in some} - {0})[:_FEW]
            with suppress(Unreachable):  # borrowing says why that fails, if it does
                found |= self._kernel.fulfil(by_cookie, self._backend.home, netns, pids)
        return found


def _not_attached(sockets: Sequence[Socket]) -> dict[int, SocketState]:
    """Sockets that aren't attached, as sock_diag shows them; those that it doesn't know, or whose
    namespace can't be reached, are left out."""
    by_netns: defaultdict[int, list[Socket]] = defaultdict(list)
    for each in sockets:
        by_netns[each.netns].append(each)
    found: dict[int, TcpSocket] = {}
    for netns, some in by_netns.items():
        pids = sorted({each.pid for each in some})[:_FEW]
        with suppress(Unreachable), inside(netns, pids), open_diag() as diag:
            told = tcp_sockets(diag, {each.inode for each in some}).values()
            found |= {each.cookie: each for each in told}
    cookies = {each.cookie for each in sockets}
    return {
        cookie: SocketState(each.congestion_control, _gone(each.state))
        for cookie, each in found.items()
        if cookie in cookies
    }


def _gone(state: str) -> str:
    return "" if state in CAN_SEND else _ENDED


def _given(request: SwitchRequest, found: SocketAnswer) -> Change:
    if found.error == errno.ENOTCONN:
        return request.gone(_ENDED)
    if found.error == errno.EBUSY:
        return request.overtaken(found.now)
    if found.error:
        return request.failed(
            refusal(found.error, request.new, os.strerror(found.error)), found.now
        )
    if found.now != request.new:
        reason = f"the kernel accepted {request.new} but the socket runs {found.now}"
        return request.failed(reason, found.now)
    return request.done()


def _restored(request: SwitchRequest, found: SocketAnswer) -> Change:
    if found.error:
        reason = refusal(found.error, request.new, os.strerror(found.error))
        return request.failed(reason, found.now)
    return request.restored(found.now, is_mltcp(found.was))
