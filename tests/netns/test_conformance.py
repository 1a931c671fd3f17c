# SPDX-License-Identifier: BSD-2-Clause
"""Behaviour that all backends share, a table's row each: what is done, and what is seen then."""

from __future__ import annotations

import itertools
import select
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest
from netns.backends_here import backend_fixture, collect, uncounted
from netns.connections import bottleneck, connection, send_burst

from mltcp_tools.kernel.backends import get_backend
from mltcp_tools.kernel.backends.base import Backend, Job, JobParams
from mltcp_tools.lab.testbed.namespaces import inside

SO_COOKIE = 57
SYN_SENT = 2
BURST = 200_000
GAP_S = 0.15
PARAMS = JobParams(burst_bytes=BURST, gap_s=GAP_S)
COUNTING = ("mltcp", "mltcp_cubic")
"""As ACKs come, and where the window grows."""


backend = backend_fixture()


def bursts(sender: socket.socket, count: int = 2) -> None:
    """So many iterations, the last of them with its gap: the next one ends it."""
    for _ in range(count):
        send_burst(sender, BURST)
        time.sleep(4 * GAP_S)


def cookies_nobody_asked_for(backend: Backend) -> object:
    backend.load(defaults=PARAMS)
    with bottleneck() as network:
        with inside(network.senders[0]):
            stream = backend.iterations()
        with stream, connection(network, "mltcp") as sender:
            bursts(sender, 3)
            events = collect(stream, 2)
            own = sender.getsockopt(socket.SOL_SOCKET, SO_COOKIE, 8)
            return {event.cookie for event in events} == {int.from_bytes(own, "little")}


def jobs_of_two_namespaces(backend: Backend) -> object:
    backend.load()
    backend.set_job(Job(1, "here", PARAMS))
    with bottleneck() as network:
        there = get_backend(backend.name)
        with inside(network.senders[0]):
            before = there.jobs()
            there.set_job(Job(1, "there", PARAMS))
        after = [[job.name for job in each.jobs()] for each in (backend, there)]
        there.delete_job(1)
        return before, after, [job.name for job in backend.jobs()]


def events_of_two_namespaces(backend: Backend) -> object:
    """Of a flow with a job to the job's namespace, of one without to its own."""
    backend.load(defaults=PARAMS)
    backend.set_job(Job(7, "here", PARAMS))
    with bottleneck() as network, connection(network, "mltcp") as sender:
        backend.tag(sender.fileno(), 7)
        with backend.iterations() as ours:
            bursts(sender, 3)
            heard = [event.job_id for event in collect(ours, 2)]
            backend.untag(sender.fileno())
            bursts(sender, 1)
            collect(ours, 1, seconds=1)  # the one that was cut short, where that is told
            bursts(sender, 3)
            return heard[:2], [event.job_id for event in collect(ours, 1, seconds=1)]


def a_deleted_job(backend: Backend) -> object:
    """Its flow goes on without a job, and nobody hears of the iteration it was in."""
    backend.load()
    backend.set_job(Job(1, "short", PARAMS))
    with (
        bottleneck() as network,
        backend.iterations() as stream,
        connection(network, "mltcp") as sender,
    ):
        backend.tag(sender.fileno(), 1)
        bursts(sender, 2)
        told = len(collect(stream, 1))
        backend.delete_job(1)
        bursts(sender, 2)
        (flow,) = backend.flows()
        return told, len(collect(stream, 1, seconds=1)), flow.job_id, flow.active


def a_tag_that_changes(backend: Backend) -> object:
    """The iteration it cuts short is told of, and the next one starts at nothing.

    A flow that hasn't been silent for a millisecond sees its new tag with its next step.
    """
    backend.load()
    for number in (1, 2):
        backend.set_job(Job(number, f"job {number}", JobParams(burst_bytes=BURST, gap_s=10)))
    with bottleneck() as network, backend.iterations() as stream:
        with connection(network, "mltcp") as sender:
            for number in (1, 2):
                backend.tag(sender.fileno(), number)
                time.sleep(GAP_S)
                send_burst(sender, BURST // number)
        events = collect(stream, 2)
    sizes = [BURST // event.job_id for event in events]
    late = uncounted(backend)
    return (
        [(event.job_id, event.iteration) for event in events],
        [event.bytes for event in events] == pytest.approx(sizes, abs=late),
        sum(event.bytes for event in events) - sum(sizes),
    )


def increase_scaled_to_nothing(backend: Backend) -> object:
    """With F = 0 the base is handed counts of 0: the window of congestion avoidance stays."""
    backend.load()
    still = JobParams(burst_bytes=50 * BURST, gap_s=10, slope=0, intercept=0)
    grown = []
    with bottleneck(10_000_000, 10_000) as network:
        for number, name in enumerate(("mltcp_reno", "mltcp_cubic"), 1):
            with connection(network, name) as sender:
                send_burst(sender, 5 * BURST)  # out of slow start, by a loss
                backend.set_job(Job(number, name, still))
                backend.tag(sender.fileno(), number)
                send_burst(sender, 20_000)
                (before,) = (flow for flow in backend.flows() if flow.job_id == number)
                send_burst(sender, 2 * BURST)
                (after,) = (flow for flow in backend.flows() if flow.job_id == number)
                grown.append(before.losses == after.losses and after.cwnd > before.cwnd + 1)
    return grown


def the_clock(backend: Backend) -> object:
    """Times are CLOCK_MONOTONIC, of when the ACKs came."""
    backend.load()
    backend.set_job(Job(1, "timed", PARAMS))
    right = []
    for name in COUNTING:
        with bottleneck() as network, backend.iterations() as stream:
            with connection(network, name) as sender:
                backend.tag(sender.fileno(), 1)
                began = time.monotonic()
                send_burst(sender, BURST)
            ended = time.monotonic()
            (event,) = collect(stream, 1)
        right.append(began <= event.first_ack_s <= event.last_ack_s <= ended)
    return right


def nothing_sent(backend: Backend) -> object:
    """Of a flow that has received, and whose FIN was acknowledged, there is nothing to tell."""
    backend.load()
    backend.set_job(Job(1, "receiver", PARAMS))
    with socket.create_server(("127.0.0.1", 0)) as listener, backend.iterations() as stream:
        for name in COUNTING:
            with socket.socket() as receiver:
                receiver.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
                receiver.connect(listener.getsockname())
                with listener.accept()[0] as peer:
                    backend.tag(receiver.fileno(), 1)
                    peer.send(bytes(5000))
                    receiver.recv(5000, socket.MSG_WAITALL)
                    receiver.shutdown(socket.SHUT_WR)
                    assert peer.recv(1) == b""
        return [event.bytes for event in collect(stream, 1, seconds=1)]


def chosen_while_connecting(backend: Backend) -> object:
    """The ACK of a SYN is no iteration, and no part of one."""
    backend.load(defaults=PARAMS)
    with (
        socket.create_server(("127.0.0.1", 0), backlog=0) as listener,
        backend.iterations() as stream,
    ):
        here = listener.getsockname()
        for name, size in itertools.product(COUNTING, (0, 5000)):
            with socket.create_connection(here), socket.socket() as sender:
                assert select.select([listener], [], [], 20)[0]  # so there is room for no other
                sender.setblocking(False)
                sender.connect_ex(here)  # which is tried again after a second
                sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
                assert sender.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == SYN_SENT
                listener.accept()[0].close()
                assert select.select([], [sender], [], 20)[1]
                with listener.accept()[0] as peer:
                    sender.send(bytes(size))
                    peer.recv(size, socket.MSG_WAITALL)
        return [event.bytes for event in collect(stream, 3, seconds=1)]


TABLE: list[tuple[Callable[[Backend], object], Any]] = [
    (cookies_nobody_asked_for, True),
    (jobs_of_two_namespaces, ([], [["here"], ["there"]], ["here"])),
    (events_of_two_namespaces, ([7, 7], [])),
    (a_deleted_job, (1, 0, 1, False)),
    (a_tag_that_changes, ([(1, 1), (2, 1)], True, 0)),
    (increase_scaled_to_nothing, [False, False]),
    (the_clock, [True, True]),
    (nothing_sent, []),
    (chosen_while_connecting, [5000, 5000]),
]


@pytest.mark.parametrize(("row", "seen"), TABLE, ids=lambda each: getattr(each, "__name__", ""))
def test_backends_do_the_same(
    backend: Backend, row: Callable[[Backend], object], seen: object
) -> None:
    assert row(backend) == seen
