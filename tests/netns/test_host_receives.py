"""Each backend takes from the kernel's counters what comes towards a flow's host."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from netns.backends_here import backend_fixture, fresh_and_loaded
from netns.connections import TCP_CONGESTION, bottleneck, send_burst

from mltcp_tools.backends.base import Backend
from mltcp_tools.testbed.namespaces import inside
from mltcp_tools.testbed.network import RECEIVER_ADDRESS, Network

backend = backend_fixture(fresh_and_loaded)

BURST = 200_000


def _discard(sock: socket.socket) -> None:
    buffer = bytearray(1 << 16)
    while sock.recv_into(buffer):
        pass


@contextlib.contextmanager
def _pair(network: Network, congestion_control: str) -> Iterator[tuple[socket.socket, ...]]:
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


@pytest.mark.parametrize("came", [0, BURST // 20, BURST], ids=["nothing", "little", "much"])
def test_a_flow_knows_what_comes_on_other_connections(backend: Backend, came: int) -> None:
    with (
        bottleneck() as network,
        _pair(network, "mltcp") as (sender, peer),
        _pair(network, "reno") as (mine, theirs),
    ):
        for reader in (peer, mine):
            threading.Thread(target=_discard, args=(reader,), daemon=True).start()
        for _ in range(4):
            time.sleep(0.05)
            if came:
                send_burst(theirs, came)
            send_burst(sender, BURST)
        port = sender.getsockname()[1]
        flow = next(each for each in backend.flows() if each.local_port == port)
        theirs.shutdown(socket.SHUT_WR)
        sender.shutdown(socket.SHUT_WR)
    assert flow.iteration >= 3
    assert flow.two_way == (came == BURST)
