# SPDX-License-Identifier: BSD-2-Clause
"""Processes that are worth a closer look, as they may have connections nobody has seen."""

from __future__ import annotations

import os
import socket
import subprocess
from contextlib import ExitStack

from mltcp_tools.live.agent.attaching import _known, have_new
from mltcp_tools.live.agent.follow import pause_s
from mltcp_tools.live.agent.rules import Rule
from mltcp_tools.live.agent.watchlist import Watched, Watchlist
from mltcp_tools.live.attach.processes import process
from mltcp_tools.live.attach.selection import Target
from mltcp_tools.live.attach.sockets import sockets

RULE = Rule("job", Target(pids=(os.getpid(),)))


def look(watched: Watched) -> None:
    """As the follower does after attaching what it found."""
    watched.known = _known(watched.process, sockets(watched.process))


def test_a_socket_is_noticed_when_it_comes_and_when_it_connects() -> None:
    watched = Watched(process(os.getpid()), RULE)
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        look(watched)
        assert have_new([watched]) == []
        stack.enter_context(socket.socket(type=socket.SOCK_DGRAM))
        assert have_new([watched]) == [watched]
        look(watched)
        assert have_new([watched]) == []  # it will never be one of ours
        for family in (socket.AF_INET, socket.AF_INET6):
            unconnected = stack.enter_context(socket.socket(family))
            look(watched)
            assert have_new([watched]) == [watched]  # this one may connect at any time
            unconnected.close()
        look(watched)
        connection = stack.enter_context(socket.create_connection(listener.getsockname()))
        assert have_new([watched]) == [watched]
        look(watched)
        assert have_new([watched]) == []
        peer, _ = listener.accept()
        stack.enter_context(peer)
        assert have_new([watched]) == [watched]
        look(watched)
        connection.close()
        assert have_new([watched]) == []


def test_a_grown_up_process_that_becomes_another_program() -> None:
    watchlist = Watchlist([Rule("job", Target(patterns=("^sleep 4242$",)))], [].append)
    with subprocess.Popen(
        ["bash", "-c", "read; exec sleep 4242"], stdin=subprocess.PIPE
    ) as started:
        try:
            for now_s in (0, 5, 6):  # from then on it isn't read anew each time
                watchlist.look(now_s)
            assert list(watchlist) == []
            assert started.stdin is not None
            started.stdin.write(b"\n")
            started.stdin.flush()
            # An exec gives it the name first, and the arguments a moment later.
            while process(started.pid).command[:1] != ("sleep",):
                pass
            watchlist.look(7)
            assert [each.process.pid for each in watchlist] == [started.pid]
        finally:
            started.kill()


def test_one_look_that_takes_long_does_not_put_the_next_ones_off() -> None:
    assert pause_s(0.0, 2.0) == pause_s(2.0, 0.001) == 1.0
    assert pause_s(0.1, 0.2) == 8.0
    assert pause_s(2.0, 2.0) == 30.0
