"""Packets as they leave a worker's socket, in one message or one by one."""

from __future__ import annotations

import socket
from collections import Counter

import numpy as np
import pytest

from mltcp_tools.collectives.library import How, Kind, State, Worker, secret_of

VALUES, WINDOW = 352, 16
DATA_BYTES, POLL_BYTES = 56 + 4 * VALUES, 56
SO_NO_CHECK = 11  # with which the kernel cuts no messages into packets


@pytest.mark.parametrize("cuts", [True, False])
def test_a_window_of_packets_comes_as_packets(cuts: bool) -> None:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as there,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as here,
    ):
        there.bind(("127.0.0.1", 0))
        here.connect(there.getsockname())
        here.setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, int(not cuts))
        worker = Worker(
            *(here.fileno(), -1),
            **{"secret": secret_of(bytes(16)), "key": 1, "slots": 256, "values": VALUES},
            **{"workers": 2, "rank": 0, "sender": 0, "min_rto_us": 10_000},
        )
        array = np.arange(VALUES * (WINDOW + 4), dtype=np.int32)
        at = array.ctypes.data
        try:
            assert (
                worker.reduce(at, at, array.size, Kind.INT32, How.SUM, timeout_s=0.2)
                is State.SILENT
            )
            counted = worker.counters()
        finally:
            worker.close()
        came, chunks = Counter[int](), set()
        there.setblocking(False)
        for _ in range(counted.sent):
            packet = there.recv(4096)
            came[len(packet)] += 1
            if len(packet) == DATA_BYTES:
                first = int.from_bytes(packet[56:60], "little")
                assert packet[56:] == array[first : first + VALUES].tobytes()
                chunks.add(first // VALUES)
        assert set(came) == {DATA_BYTES, POLL_BYTES}
        assert chunks == set(range(WINDOW))
        with pytest.raises(BlockingIOError):
            there.recv(4096)
        # The socket was left as it was where messages are cut, and else is told not to check.
        assert bool(here.getsockopt(socket.SOL_SOCKET, SO_NO_CHECK)) is not cuts
