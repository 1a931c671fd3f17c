# SPDX-License-Identifier: BSD-2-Clause
"""The answers of sock_diag about this process's own sockets, which takes no privilege."""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import sys
import time

import pytest

from mltcp_tools.base.errors import HostError
from mltcp_tools.kernel.host import diag
from mltcp_tools.live.attach.processes import process
from mltcp_tools.live.attach.sockets import sockets

SO_ATTACH_FILTER, SO_DETACH_FILTER = 26, 27
"""asm-generic/socket.h."""


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_only_the_wanted_are_told(address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with (
        socket.create_server((address, 0), family=family) as listener,
        socket.create_connection(listener.getsockname()[:2]) as sender,
        diag.open_diag() as asking,
    ):
        inode = os.fstat(sender.fileno()).st_ino
        found = diag.tcp_sockets(asking, {inode, 1})
        assert diag.tcp_sockets(asking, set()) == {}
        assert list(found) == [inode]
        assert found[inode].remote == listener.getsockname()[:2]
        assert found[inode].local == sender.getsockname()[:2]
        assert sender.fileno() in {each.fd for each in sockets(process(os.getpid()))}


def test_what_is_sent_again_counts_once() -> None:
    drop_all = struct.pack("HBBI", 0x06, 0, 0, 0)  # one instruction of classic BPF: return 0
    instructions = ctypes.create_string_buffer(drop_all)
    program = struct.pack("HP", 1, ctypes.addressof(instructions))
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as sender,
        listener.accept()[0] as receiver,
    ):
        receiver.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)
        sender.sendall(bytes(1000))
        deadline = time.monotonic() + 60
        while not retransmits(sender) and time.monotonic() < deadline:
            time.sleep(0.01)
        receiver.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, 0)
        assert len(receiver.recv(1000, socket.MSG_WAITALL)) == 1000
        assert retransmits(sender)
        (seen,) = (each for each in sockets(process(os.getpid())) if each.fd == sender.fileno())
        assert seen.bytes_sent == 1000


def retransmits(sock: socket.socket) -> int:
    """tcpi_total_retrans of struct tcp_info."""
    data = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
    return int.from_bytes(data[100:104], sys.byteorder)


def test_a_kernel_that_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diag, "_SOCK_DIAG_BY_FAMILY", 4242)
    with diag.open_diag() as asking, pytest.raises(HostError, match="modprobe tcp_diag"):
        diag.tcp_sockets(asking, {1})
