# SPDX-License-Identifier: BSD-2-Clause
"""The connections of a trial's jobs, from real sockets; none is switched."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from mltcp_tools.kernel.backends.base import Job
from mltcp_tools.live.attach.processes import process
from mltcp_tools.live.attach.sockets import Socket, sockets
from mltcp_tools.live.attach.state import AttachedJob, SocketRecord
from mltcp_tools.live.trial.subjects import Subject

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="attaching takes root")


@pytest.fixture
def connect() -> Iterator[object]:
    """A function that opens a connection; the socket that sends, and its peer."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))

        def opened() -> tuple[Socket, Socket]:
            sender = stack.enter_context(socket.create_connection(listener.getsockname()))
            peer = stack.enter_context(listener.accept()[0])
            by_fd = {each.fd: each for each in sockets(process(os.getpid()))}
            return by_fd[sender.fileno()], by_fd[peer.fileno()]

        yield opened


def record(sock: Socket) -> SocketRecord:
    where = (sock.pid, sock.start_ticks, sock.fd, sock.netns, sock.inode, sock.cookie)
    return SocketRecord(*where, sock.local, sock.remote, "reno", "mltcp")


def test_connections_opened_in_a_trial_join_it_and_others_do_not(connect) -> None:  # type: ignore[no-untyped-def]
    """Lazy Gloo opens a subgroup's at its first collective; what was left out stays so."""
    attached, left_out = connect()[0], connect()
    before = AttachedJob(Job(1, "a"), "bpf", (record(attached),))
    subject = Subject("a", None, before, [])
    subject.look_again()
    assert [each.cookie for each in subject.sockets] == [attached.cookie]
    lazy = connect()
    subject.look_again()
    found = {each.cookie for each in subject.sockets}
    assert found == {attached.cookie, *(each.cookie for each in lazy)}
    assert not found & {each.cookie for each in left_out}
