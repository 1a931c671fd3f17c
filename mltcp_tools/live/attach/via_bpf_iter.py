# SPDX-License-Identifier: BSD-2-Clause
"""Sockets are switched, tagged and put back in the kernel, and no process is touched."""

from __future__ import annotations

import errno
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from mltcp_tools.kernel.backends.bpf import BpfBackend
from mltcp_tools.kernel.backends.bpf_sockets import (
    Action,
    Attached,
    Found,
    KernelSockets,
    Wish,
)
from mltcp_tools.kernel.congestion_controls import is_mltcp
from mltcp_tools.kernel.host.diag import TcpSocket, open_diag, tcp_sockets
from mltcp_tools.kernel.host.namespaces import Unreachable, inside
from mltcp_tools.live.attach.access import Gift, Reach, Result, Sight
from mltcp_tools.live.attach.pidfd import refusal
from mltcp_tools.live.attach.sockets import CAN_SEND, Socket
from mltcp_tools.live.attach.state import SocketRecord
from mltcp_tools.live.attach.via_pidfd import Borrowing, switched_to, taken_back

_ENDED = "the connection has ended"
_FEW = 8
"""Processes by which to enter a network namespace."""


@dataclass(frozen=True)
class _Asked:
    """A socket, the inode of its namespace, a process that has it (0: none), and what is wanted."""

    cookie: int
    netns: int
    pid: int
    wish: Wish


class Iterating(Reach):
    """Through the programs in the kernel; what these don't find is borrowed, if at all.

    A namespace that nothing but a descriptor keeps alive can't be walked through.
    """

    def __init__(self, backend: BpfBackend, kernel: KernelSockets) -> None:
        self._backend = backend
        self._kernel = kernel
        self._borrowing = Borrowing(backend if backend.is_present() else None)

    def look(self, sockets: Sequence[Socket]) -> dict[int, Sight]:
        attached = {each.cookie: each for each in self._kernel.attached()}
        found = {
            each.cookie: self._sight(attached[each.cookie])
            for each in sockets
            if each.cookie in attached
        }
        found |= _as_they_are([each for each in sockets if each.cookie not in found])
        missing = [each for each in sockets if each.cookie not in found]
        return found | (self._borrowing.look(missing) if missing else {})

    def _sight(self, found: Attached) -> Sight:
        return Sight(found.now, _gone(found.state), self._tag(found), found.first)

    def _tag(self, found: Attached) -> int:
        """The id of the job of this network namespace that the socket is tagged with; 0: none."""
        job, home = found.tag or (0, None)
        return job if home == self._backend.home else 0

    def give(self, gifts: Sequence[Gift]) -> dict[int, Result]:
        by_cookie = {each.socket.cookie: each for each in gifts}
        found = self._fulfil(
            [
                _Asked(
                    each.socket.cookie,
                    each.socket.netns,
                    each.socket.process.pid,
                    Wish(Action.GIVE, each.name, each.expected, each.job),
                )
                for each in gifts
            ]
        )
        missing = [each for each in gifts if each.socket.cookie not in found]
        return {cookie: _given(each, by_cookie[cookie]) for cookie, each in found.items()} | (
            self._borrowing.give(missing) if missing else {}
        )

    def tags(self, sockets: Sequence[Socket]) -> Mapping[int, int]:
        cookies = {each.cookie for each in sockets}
        attached = ((each.cookie, self._tag(each)) for each in self._kernel.attached())
        found = {cookie: job for cookie, job in attached if job and cookie in cookies}
        return found if found.keys() == cookies else {**self._borrowing.tags(sockets), **found}

    def restore(self, records: Sequence[SocketRecord]) -> dict[int, Result]:
        found = self._fulfil(
            [
                _Asked(each.cookie, each.netns, each.pid, Wish(Action.TAKE, each.old))
                for each in records
            ]
        )
        missing = [each for each in records if each.cookie not in found and each.pid]
        done = self._borrowing.restore(missing) if missing else {}
        for each in records:
            if each.cookie in found:
                done[each.cookie] = _restored(found[each.cookie], each.old)
            else:
                done.setdefault(each.cookie, Result("gone", reason="the socket was closed"))
        return done

    def _fulfil(self, asked: Sequence[_Asked]) -> dict[int, Found]:
        """Walk through each namespace of these once; one that can't be reached is left out."""
        by_netns: defaultdict[int, list[_Asked]] = defaultdict(list)
        for each in asked:
            by_netns[each.netns].append(each)
        found: dict[int, Found] = {}
        for netns, some in by_netns.items():
            wishes = {each.cookie: each.wish for each in some}
            pids = sorted({each.pid for each in some} - {0})[:_FEW]
            with suppress(Unreachable):  # borrowing says why that fails, if it does
                found |= self._kernel.fulfil(wishes, self._backend.home, netns, pids)
        return found


def _as_they_are(sockets: Sequence[Socket]) -> dict[int, Sight]:
    """Sockets that aren't attached, as sock_diag tells; what it doesn't know, and what is in a
    namespace that can't be reached, is left out."""
    by_netns: defaultdict[int, list[Socket]] = defaultdict(list)
    for each in sockets:
        by_netns[each.netns].append(each)
    found: dict[int, TcpSocket] = {}
    for netns, some in by_netns.items():
        pids = sorted({each.process.pid for each in some})[:_FEW]
        with suppress(Unreachable), inside(netns, pids), open_diag() as diag:
            told = tcp_sockets(diag, {each.inode for each in some}).values()
            found |= {each.cookie: each for each in told}
    cookies = {each.cookie for each in sockets}
    return {
        cookie: Sight(each.congestion_control, _gone(each.state))
        for cookie, each in found.items()
        if cookie in cookies
    }


def _gone(state: str) -> str:
    return "" if state in CAN_SEND else _ENDED


def _given(found: Found, gift: Gift) -> Result:
    if found.error == errno.ENOTCONN:
        return Result("gone", reason=_ENDED)
    if found.error == errno.EBUSY:
        return Result("failed", found.now, switched_to(found.now))
    if found.error:
        reason = refusal(found.error, gift.name, os.strerror(found.error))
        return Result("failed", found.now, reason, changed=found.now != found.was)
    if found.now != gift.name:
        reason = f"the kernel accepted {gift.name} but the socket runs {found.now}"
        return Result("failed", found.now, reason, changed=True)
    return Result("done", found.now)


def _restored(found: Found, old: str) -> Result:
    if found.error:
        return Result("failed", found.now, refusal(found.error, old, os.strerror(found.error)))
    return taken_back(is_mltcp(found.was), found.now, old)
