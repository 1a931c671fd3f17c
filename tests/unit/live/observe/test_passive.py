# SPDX-License-Identifier: BSD-2-Clause
"""Iterations of real connections, seen from observer."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from mltcp_tools.live.attach.processes import process
from mltcp_tools.live.attach.sockets import Socket, sockets
from mltcp_tools.live.observe.iteration_detector import Sample
from mltcp_tools.live.observe.meter import Meter
from mltcp_tools.live.observe.passive import NoIterations, PassiveObserver

BURST = 300_000


@contextlib.contextmanager
def sending(pause_s: float, interface: str = "") -> Iterator[tuple[Socket, list[float]]]:
    """A connection over which a thread sends bursts with pauses; when each had arrived.

    interface: to which it is bound, if any.
    """
    stop = threading.Event()
    done: list[float] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sender = socket.socket()
        if interface:
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode())
        sender.connect(listener.getsockname())
        peer, _ = listener.accept()
    with sender, peer:

        def work() -> None:
            while not stop.wait(pause_s):
                sender.sendall(bytes(BURST))
                left = BURST
                while left:
                    left -= len(peer.recv(left))
                done.append(time.monotonic())

        thread = threading.Thread(target=work)
        thread.start()
        try:
            own = sockets(process(os.getpid()))
            (found,) = [each for each in own if each.local == sender.getsockname()]
            yield found, done
        finally:
            stop.set()
            thread.join()


@pytest.mark.parametrize("interface", ["", "lo"])
def test_iterations_are_those_that_were_sent(interface: str) -> None:
    with sending(0.25, interface) as (sock, done), Meter() as meter:
        assert sock.interface == (socket.if_nametoindex(interface) if interface else 0)
        observer = PassiveObserver(meter, lambda: None)
        learned = observer.learn({"a": [sock]}, 60.0)["a"]
        assert len(learned) >= 7
        assert {round(each.size / BURST) for each in learned} == {1}
        begun_s = time.monotonic()
        seen = []
        while sum(each.count for _, each in seen) < 20:
            seen += observer.wait()
        iterations = [each for _, each in seen if each.start_s >= begun_s]
        sent = [
            at_s
            for at_s in done
            if iterations[0].start_s + 0.01 < at_s < iterations[-1].end_s + 0.01
        ]
        assert abs(sum(each.count for each in iterations) - len(sent)) <= 1
        assert observer.closed() == []


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ([], "moved nothing; see that it trains"),
        ([10**6] * 4, "were silent 3 times only"),
        ([10**5 * (1 + number % 9) for number in range(20)], "20 bursts that don't resemble"),
    ],
)
def test_what_was_seen_instead_of_iterations_is_said(sizes: list[int], said: str) -> None:
    """Bursts of a sample each, and a tenth of a second between them."""
    moved, samples = 0, [Sample(0.0, 0, 0.0)]
    for number, size in enumerate(sizes):
        moved += size
        begin_s = 0.1 * (number + 1)
        samples += [Sample(begin_s + 0.01 * step, moved, 0.01 * step) for step in range(10)]
    samples += [Sample(samples[-1].at_s + 0.01 * step, moved, 1.0) for step in (1, 2, 3)]
    assert said in str(NoIterations("a", 60.0, samples))


def test_a_connection_that_closes_is_noticed() -> None:
    with Meter() as meter:
        observer = PassiveObserver(meter, lambda: None)
        with sending(0.25) as (sock, _):
            observer.learn({"a": [sock]}, 60.0)
        while not observer.closed():
            observer.wait()
        assert observer.closed() == ["a"]
