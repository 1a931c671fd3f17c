# SPDX-License-Identifier: BSD-2-Clause
"""Each backend takes from the kernel's counters what comes towards a flow's host."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from netns.backends_here import backend_fixture, fresh_and_loaded
from netns.connections import TCP_CONGESTION, bottleneck, discard, send_burst
from pyroute2 import IPRoute

from mltcp_tools.kernel.backends.base import Backend, Job, JobParams
from mltcp_tools.lab.testbed.namespaces import inside
from mltcp_tools.lab.testbed.network import RECEIVER_ADDRESS, Dumbbell

backend = backend_fixture(fresh_and_loaded)

BURST = 200_000


@contextlib.contextmanager
def _pair(network: Dumbbell, congestion_control: str) -> Iterator[tuple[socket.socket, ...]]:
    """(the sender's end, the receiver's), either of which may send."""
    with inside(network.receiver):
        listener = socket.create_server((RECEIVER_ADDRESS, 0))
    with inside(network.senders[0]):
        sender = socket.socket()
    with listener, sender:
        sender.setsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, congestion_control.encode())
        sender.connect(listener.getsockname())
        peer, _ = listener.accept()
        with peer:
            yield sender, peer


@contextlib.contextmanager
def _loopback(network: Dumbbell) -> Iterator[socket.socket]:
    """A connection of the sender's host with itself."""
    with inside(network.senders[0]):
        with IPRoute() as ip:
            ip.link("set", index=ip.link_lookup(ifname="lo")[0], state="up")
        listener = socket.create_server(("127.0.0.1", 0))
        sender = socket.create_connection(listener.getsockname())
    with listener, sender:
        peer, _ = listener.accept()
        with peer:
            threading.Thread(target=discard, args=(peer,), daemon=True).start()
            yield sender
            sender.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize(
    ("rx", "tx", "within", "bidirectional"),
    [
        pytest.param(0, 0, 0, False, id="nothing"),
        pytest.param(BURST // 20, 0, 0, False, id="little"),
        pytest.param(BURST, 0, 0, True, id="much"),
        pytest.param(BURST // 4, 4 * BURST, 0, False, id="little-to-what-the-host-sends"),
        pytest.param(0, 0, 10 * BURST, False, id="loopback"),
    ],
)
def test_a_flow_knows_what_comes_on_other_connections(
    backend: Backend, rx: int, tx: int, within: int, bidirectional: bool
) -> None:
    with (
        bottleneck() as network,
        _pair(network, "mltcp") as (sender, peer),
        _pair(network, "reno") as (mine, theirs),
        _pair(network, "reno") as (other, others_peer),
        _loopback(network) as own,
    ):
        backend.set_job(Job(1, "a", JobParams(burst_bytes=BURST, gap_s=0.1)))
        backend.tag(sender.fileno(), 1)
        for reader in (peer, mine, others_peer):
            threading.Thread(target=discard, args=(reader,), daemon=True).start()
        for _ in range(5):
            time.sleep(0.25)
            for sock, size in ((theirs, rx), (other, tx), (own, within)):
                if size:
                    send_burst(sock, size)
            send_burst(sender, BURST)
        port = sender.getsockname()[1]
        flow = next(each for each in backend.flows() if each.local_port == port)
        for each in (theirs, other, sender):
            each.shutdown(socket.SHUT_WR)
    assert flow.iteration >= 4
    assert flow.bidirectional == bidirectional
