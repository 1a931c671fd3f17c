# SPDX-License-Identifier: BSD-2-Clause
"""A job's connections wait where a path holds few, by TCP's pacing, which is left as it was."""

from __future__ import annotations

import contextlib
import fcntl
import socket
import struct
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import pytest
from netns.backends_here import backend_fixture, fresh_and_loaded, unload_by_force
from netns.connections import bottleneck, connected_ends
from netns.pacing import NOBODY, choose, limit, listing, statuses
from support.tcp_counters import tcp_counters
from support.waiting import wait_for

from mltcp_tools.kernel.backends.base import Backend, Job, JobParams
from mltcp_tools.lab.testbed.namespaces import inside
from mltcp_tools.lab.testbed.network import Network

backend = backend_fixture(fresh_and_loaded)

RATE, QUEUE = 5_000_000, 6000
"""A queue of four packets."""
BURST = 50_000
CONNECTIONS = 10
LIMIT = 100_000_000
"""More than the link carries, bytes/s."""
ANSWER = bytes(3000)
"""More than one segment, so that its ACK isn't delayed."""
ROUNDS = 8
DISCARDED_AS_OLD = ("PAWSEstab", "PAWSOldAck")
_SO_SNDBUFFORCE = 32
_TIMER = "tcp_pace_kick"

T = TypeVar("T")

LONE = 2
"""The job that has one connection; job 1 has all others."""
PARAMS = JobParams(total_bytes=BURST, gap_s=0.02, mechanisms=("increase", "decrease", "yield"))


@pytest.fixture
def pacing(tmp_path: Path) -> Iterator[Path]:
    with listing(tmp_path) as found:
        yield found


class Crowd:
    """Connections over one link, all but the last of one job, which send bursts at once."""

    def __init__(self, network: Network, ends: list[tuple[socket.socket, socket.socket]]) -> None:
        self.network = network
        self.ends = ends
        self.senders = [sender for sender, _ in ends]
        self.lone = self.senders[-1]

    def tag(self, backend: Backend, each: socket.socket) -> None:
        backend.tag(each.fileno(), LONE if each is self.lone else 1)

    def send(self) -> None:
        """Hand a burst over to each."""
        for sender in self.senders:
            assert sender.send(bytes(BURST)) == BURST

    def are_done(self) -> bool:
        return not any(
            struct.unpack("i", fcntl.ioctl(each, termios.TIOCOUTQ, bytes(4)))[0]
            for each in self.senders
        )

    def finish(self) -> None:
        wait_for(self.are_done, "the end of the bursts")

    def paced(self, pacing: Path) -> list[socket.socket]:
        with inside(self.network.senders[0]):
            found = zip(self.senders, statuses(pacing, self.senders), strict=True)
        return [sender for sender, status in found if status != NOBODY]

    def wait_until_held(self, held: Callable[[], list[T]], enough: int = 1) -> Sequence[T]:
        """Those that are held back, so many and more, in the midst of a burst."""

        def look() -> list[T]:
            if self.are_done():
                time.sleep(0.05)  # a gap
                self.send()
            return found if len(found := held()) >= enough else []

        return wait_for(look, "connections that wait for another one")


@contextlib.contextmanager
def crowd(backend: Backend, name: str) -> Iterator[Crowd]:
    for job_id in (1, LONE):
        backend.set_job(Job(job_id, f"job-{job_id}", PARAMS))
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(bottleneck(RATE, QUEUE))
        ends = [stack.enter_context(connected_ends(network, name)) for _ in range(CONNECTIONS)]
        found = Crowd(network, ends)
        for sender in found.senders:
            sender.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, 4 * BURST)
            found.tag(backend, sender)
        yield found


def switch(backend: Backend, crowd: Crowd) -> None:
    for each in crowd.senders:
        choose(each, "reno")


def switch_in_a_gap(backend: Backend, crowd: Crowd) -> None:
    crowd.finish()
    time.sleep(0.05)
    switch(backend, crowd)


def untag(backend: Backend, crowd: Crowd) -> None:
    for each in crowd.senders:
        backend.untag(each.fileno())


def give_to_another_job(backend: Backend, crowd: Crowd) -> None:
    for number, each in enumerate(crowd.senders):
        backend.set_job(Job(10 + number, "alone", PARAMS))
        backend.tag(each.fileno(), 10 + number)


def remove(backend: Backend, crowd: Crowd) -> None:
    unload_by_force(backend)


@pytest.mark.bpf  # which shows how a connection is paced
@pytest.mark.parametrize("name", ["mltcp", "mltcp_cubic"])
@pytest.mark.parametrize("leave", [switch, switch_in_a_gap, untag, give_to_another_job, remove])
def test_who_was_held_is_not_held_any_more(
    backend: Backend,
    pacing: Path,
    leave: Callable[[Backend, Crowd], None],
    name: str,
) -> None:
    with crowd(backend, name) as connections:
        held = connections.wait_until_held(lambda: connections.paced(pacing), 3)
        assert connections.lone not in held
        limit(held[0], LIMIT)  # by its process, which doesn't know that it is paced already
        leave(backend, connections)
        connections.finish()
        connections.send()
        connections.finish()
        if leave is switch:  # amid a wait: then it isn't taken off, which would spoil round trips
            assert held[0] in connections.paced(pacing)
            assert connections.lone not in connections.paced(pacing)
        else:
            assert connections.paced(pacing) == [held[0]]
        choose(held[0], "reno")
        assert held[0] in connections.paced(pacing)


def timers_of_paced_connections() -> list[str]:
    """The timers by which TCP has connections wait, as the kernel lists them."""
    return [line for line in Path("/proc/timer_list").read_text().splitlines() if _TIMER in line]


def stay(backend: Backend, crowd: Crowd, sender: socket.socket) -> None:
    """All goes on."""


def switch_to_and_fro(backend: Backend, crowd: Crowd, sender: socket.socket) -> None:
    choose(sender, "reno")
    choose(sender, "mltcp")
    crowd.tag(backend, sender)


def untag_and_tag(backend: Backend, crowd: Crowd, sender: socket.socket) -> None:
    backend.untag(sender.fileno())
    crowd.tag(backend, sender)


@pytest.mark.parametrize("change", [stay, switch_to_and_fro, untag_and_tag])
def test_time_stamps_of_who_was_held_never_go_back(
    backend: Backend, change: Callable[[Backend, Crowd, socket.socket], None]
) -> None:
    """A peer discards segments older by their stamps than what came before (RFC 7323, 5)."""
    with crowd(backend, "mltcp") as connections:
        for _ in range(ROUNDS):
            connections.wait_until_held(timers_of_paced_connections)
            for sender, peer in connections.ends:
                peer.sendall(ANSWER)
                # Its ACK leaves while data are held back.
                assert len(sender.recv(len(ANSWER), socket.MSG_WAITALL)) == len(ANSWER)
                change(backend, connections, sender)
        connections.finish()
        assert not tcp_counters(connections.network.names, DISCARDED_AS_OLD).total()
