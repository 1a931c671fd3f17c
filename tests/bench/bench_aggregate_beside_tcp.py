# SPDX-License-Identifier: BSD-2-Clause
"""The shares of a link between a worker and one reno flow: bytes of each over the same seconds.

Run as root: .venv/bin/python tests/bench/bench_aggregate_beside_tcp.py [SECONDS]. The reno flow
goes from worker 0 to the switch, so it meets the job on that worker's uplink.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from typing import Any

import numpy as np

from mltcp_tools.collectives.library import How, Kind
from mltcp_tools.collectives.session import PORT, Endpoint, Session
from mltcp_tools.lab.collectives.bench_here import aggregator
from mltcp_tools.lab.collectives.star import Star
from mltcp_tools.lab.testbed.leftovers import RunLock
from mltcp_tools.lab.testbed.namespaces import inside

RATE = 100_000_000
WORKERS = 3
TCP_CONGESTION = 13


def receive(star: Star, ready: threading.Event, got: list[int]) -> None:
    with inside(star.switch), socket.create_server(("0.0.0.0", 6000)) as server:
        ready.set()
        connection, _ = server.accept()
        while data := connection.recv(1 << 16):
            got[0] += len(data)


def send(star: Star, over: threading.Event) -> None:
    with inside(star.workers[0]), socket.socket() as out:
        out.setsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, b"reno")
        out.connect((star.gateway(0), 6000))
        while not over.is_set():
            out.sendall(bytes(1 << 16))


def work(star: Star, rank: int, until: float, sent: list[Any]) -> None:
    with inside(star.workers[rank]):
        session = Session(Endpoint(star.gateway(rank), PORT), "job", rank, WORKERS)
    array = np.ones(2_500_000, dtype=np.float32)
    result = np.empty_like(array)
    flag = np.zeros(1, dtype=np.int32)
    total = np.zeros(1, dtype=np.int32)
    while True:  # the ranks agree on the end
        flag[0] = time.monotonic() > until
        pointers = flag.ctypes.data, total.ctypes.data
        session.reduce(*pointers, 1, Kind.INT32, How.LARGEST, 30.0)
        if total[0]:
            break
        session.reduce(
            array.ctypes.data, result.ctypes.data, array.size, Kind.FLOAT32, How.SUM, 30.0
        )
    sent[rank] = session.counters()
    session.leave()


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    with (
        RunLock() as lock,
        Star(lock.id, [RATE] * WORKERS) as star,
        aggregator(star, f"bench-{lock.id}", "xdp"),
    ):
        ready, over = threading.Event(), threading.Event()
        got, sent = [0], [None] * WORKERS
        sink = threading.Thread(target=receive, args=(star, ready, got))
        sink.start()
        ready.wait()
        source = threading.Thread(target=send, args=(star, over))
        source.start()
        begin = time.monotonic()
        ranks = [
            threading.Thread(target=work, args=(star, rank, begin + seconds, sent))
            for rank in range(WORKERS)
        ]
        for thread in ranks:
            thread.start()
        for thread in ranks:
            thread.join()
        took, tcp = time.monotonic() - begin, got[0]
        over.set()
        source.join()
        sink.join()
        own = sent[0].sent_bytes  # type: ignore[attr-defined]
        print(
            f"in {took:.1f} s on {RATE / 1e6:.0f} Mbit/s: reno {tcp * 8 / took / 1e6:.1f} Mbit/s,"
            f" worker {own * 8 / took / 1e6:.1f} Mbit/s"
        )


if __name__ == "__main__":
    main()
