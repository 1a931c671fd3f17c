# SPDX-License-Identifier: BSD-2-Clause
"""The agent's words on connections whose tags the kernel doesn't show as they were."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from mltcp_tools.kernel.backends.base import Job
from mltcp_tools.live.agent.external_changes import notice_taken
from mltcp_tools.live.agent.followed import Followed
from mltcp_tools.live.agent.notices import Notices
from mltcp_tools.live.agent.rules import Rule
from mltcp_tools.live.agent.watchlist import Watched
from mltcp_tools.live.attach.processes import process
from mltcp_tools.live.attach.selection import Target
from mltcp_tools.live.attach.sockets import Socket, sockets
from mltcp_tools.live.attach.state import AttachedJob, SocketRecord, StateFiles

RULE = Rule("seven", Target(pids=(os.getpid(),)))
JOB = Job(7, "seven")


def own_connection(ours: socket.socket) -> Socket:
    (found,) = [each for each in sockets(process(os.getpid())) if each.fd == ours.fileno()]
    return found


def record(of: Socket) -> SocketRecord:
    return SocketRecord(
        pid=of.process.pid,
        start_ticks=of.process.start_ticks,
        fd=of.fd,
        netns=of.netns,
        inode=of.inode,
        cookie=of.cookie,
        local=of.local,
        remote=of.remote,
        old="reno",
        new="mltcp",
    )


def watching(*cookies: int) -> Watched:
    found = Watched(process(os.getpid()), RULE, Followed(JOB, RULE, 0))
    found.ours |= set(cookies)
    found.settled |= set(cookies)
    return found


def test_a_connection_that_closed_was_not_detached_by_hand(tmp_path: Path) -> None:
    said: list[str] = []
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as ours,
    ):
        cookie = own_connection(ours).cookie
        open_one, closed = watching(cookie), watching(2**60)
        notice_taken([closed], {}, Notices(said.append), StateFiles(tmp_path / "attach"))
        assert (said, closed.ours, closed.left) == ([], set(), set())
        notice_taken([open_one], {}, Notices(said.append), StateFiles(tmp_path / "attach"))
        assert (open_one.ours, open_one.left) == (set(), {cookie})
        assert ["detached by hand" in each for each in said] == [True]


def test_what_the_kernel_lost_is_taken_in_again(tmp_path: Path) -> None:
    said: list[str] = []
    files = StateFiles(tmp_path / "attach")
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as ours,
    ):
        found = own_connection(ours)
        files.write(AttachedJob(JOB, "bpf", (record(found),)))
        watched = watching(found.cookie, 2**60)
        notice_taken([watched], {2**60: JOB.id}, Notices(said.append), files)
        assert (watched.settled, watched.left) == ({2**60}, set())
        assert ["taking them in again" in each for each in said] == [True]
