# SPDX-License-Identifier: BSD-2-Clause
"""Packets as they leave a worker's socket, in one message or one by one, and room for answers."""

from __future__ import annotations

import os
import socket
from collections import Counter

import numpy as np
import pytest

from mltcp_tools.collectives.library import How, Kind, State, Worker, secret_of
from mltcp_tools.collectives.session import SLOTS, Session

VALUES, WINDOW, TRAIN = 352, 16, 5  # TRAIN: of packets, a third of the window
DATA_BYTES, POLL_BYTES = 56 + 4 * VALUES, 56
SO_NO_CHECK = 11  # with which the kernel cuts no messages into packets
SOL_UDP, UDP_GRO = 17, 104  # a message that nothing on the way has cut comes as it was sent


@pytest.mark.parametrize("cuts", [True, False])
def test_packet_window_goes_in_messages_the_kernel_segments(cuts: bool) -> None:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as there,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as here,
    ):
        there.bind(("127.0.0.1", 0))
        there.setsockopt(SOL_UDP, UDP_GRO, 1)
        here.connect(there.getsockname())
        here.setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, int(not cuts))
        worker = Worker(
            *(here.fileno(), -1),
            **{"secret": secret_of(bytes(16)), "key": 1, "slots": 256, "values": VALUES},
            **{"workers": 2, "rank": 0, "min_rto_us": 10_000},
        )
        array = np.arange(VALUES * (WINDOW + 4), dtype=np.int32)
        at = array.ctypes.data
        try:
            found = worker.reduce(at, at, array.size, Kind.INT32, How.SUM, timeout_s=0.2)
            assert found is State.SILENT
            counted = worker.counters()
        finally:
            worker.close()
        there.setblocking(False)
        came, chunks, largest = Counter[int](), set(), 0
        while came.total() < counted.sent:
            message = there.recv(65536)
            size = DATA_BYTES if len(message) % DATA_BYTES == 0 else POLL_BYTES
            assert len(message) % size == 0
            came[size] += len(message) // size
            largest = max(largest, len(message) // size)
            for begin in range(0, len(message) if size == DATA_BYTES else 0, DATA_BYTES):
                values = message[begin + 56 : begin + DATA_BYTES]
                first = int.from_bytes(values[:4], "little")
                assert values == array[first : first + VALUES].tobytes()
                chunks.add(first // VALUES)
        assert chunks == set(range(WINDOW))
        assert largest == (TRAIN if cuts else 1)


@pytest.mark.parametrize("count", [352, 1024])  # of values at an MTU of 1500, and of 9000
@pytest.mark.skipif(os.geteuid() != 0, reason="other users get as much as the host allows")
def test_the_receive_buffer_holds_an_answer_to_every_slot(count: int) -> None:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as there,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as here,
    ):
        there.bind(("127.0.0.1", 0))
        there.setblocking(False)
        here.connect(there.getsockname())
        session = object.__new__(Session)
        session._data = there
        session._widen(SLOTS, count)
        answer = bytes(56 + 4 * count)
        for _ in range(SLOTS):
            here.send(answer)
        for _ in range(SLOTS):  # BlockingIOError where one was dropped
            assert there.recv(5000) == answer
