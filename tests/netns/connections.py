# SPDX-License-Identifier: BSD-2-Clause
"""TCP connections over a small bottleneck, for tests of what the kernel does with them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
import termios
import threading
import time
import uuid
from collections.abc import Iterator

from mltcp_tools.lab.experiments.links import Link
from mltcp_tools.lab.testbed.namespaces import inside, write_sysctl
from mltcp_tools.lab.testbed.network import RECEIVER_ADDRESS, Dumbbell

TCP_CONGESTION = socket.TCP_CONGESTION


@contextlib.contextmanager
def bottleneck(rate: int = 100_000_000, queue: int = 20_000) -> Iterator[Dumbbell]:
    """One sender and one receiver with a bottleneck between them."""
    run_id = f"t{os.getpid()}{uuid.uuid4().hex[:4]}"
    with Dumbbell(run_id, Link(rate=rate, queue=queue), {}, 1) as network:
        yield network


def discard(peer: socket.socket) -> None:
    buffer = bytearray(1 << 16)
    while peer.recv_into(buffer):
        pass


@contextlib.contextmanager
def connected_ends(
    network: Dumbbell, congestion_control: str
) -> Iterator[tuple[socket.socket, socket.socket]]:
    """(sender, peer) connected through the bottleneck; what the peer gets is discarded."""
    with inside(network.senders[0]):
        sender = socket.socket()
    with sender:
        with inside(network.receiver):
            listener = socket.create_server((RECEIVER_ADDRESS, 0))
        with listener:
            sender.setsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, congestion_control.encode())
            sender.connect(listener.getsockname())
            peer, _ = listener.accept()
        with peer:
            reader = threading.Thread(target=discard, args=(peer,), daemon=True)
            reader.start()
            try:
                yield sender, peer
            finally:
                sender.close()
                reader.join(timeout=30)


@contextlib.contextmanager
def connection(network: Dumbbell, congestion_control: str) -> Iterator[socket.socket]:
    """A socket connected through the bottleneck to a peer that discards what it gets."""
    with connected_ends(network, congestion_control) as (sender, _):
        yield sender


@contextlib.contextmanager
def connection_here(congestion_control: str) -> Iterator[tuple[socket.socket, socket.socket]]:
    """(sender, peer) connected within this namespace; the sender's small segments go at once."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as sender:
        sender.setsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, congestion_control.encode())
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sender.connect(listener.getsockname())
        peer, _ = listener.accept()
        with peer:
            yield sender, peer


def hold_back(network: Dumbbell, most: int) -> None:
    """Have each connection of the first sender's namespace keep at most so many bytes under way."""
    with inside(network.senders[0]):
        write_sysctl("net.ipv4.tcp_wmem", f"4096 16384 {most}")


def send_burst(sender: socket.socket, size: int) -> None:
    """Send size bytes and wait until the peer has acknowledged all of them."""
    sender.sendall(bytes(size))
    while struct.unpack("i", fcntl.ioctl(sender, termios.TIOCOUTQ, bytes(4)))[0]:
        time.sleep(0.001)
