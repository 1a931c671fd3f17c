# SPDX-License-Identifier: BSD-2-Clause
"""Measuring the links: in round k rank i sends to rank i + k, so each sends and receives once."""

from __future__ import annotations

import itertools
import socket
import threading
import time

import numpy as np

from mltcp_tools.collectives.adaptive.links import Links
from mltcp_tools.collectives.adaptive.mesh import Gather, Mesh, receive, receive_into
from mltcp_tools.collectives.session import SessionError

PROBE_BYTES = 1_000_000
_WARM_BYTES = 200_000  # for slow start, and the bucket of a shaper
_PINGS = 3
_PURPOSE = 0xFFFFFFFF


def measure(mesh: Mesh, gather: Gather) -> Links:
    """The links between all ranks, who call it. Takes n - 1 rounds."""
    count, own = mesh.world, mesh.rank
    rates = np.zeros((count, count))
    latencies = np.zeros((count, count))
    pairs = itertools.permutations(range(count), 2)
    connections = mesh.connect([(_PURPOSE, *pair) for pair in pairs])
    try:
        for step in range(1, count):
            to, source = (own + step) % count, (own - step) % count
            gather(None)  # nobody sends before all are ready
            rate, latency = _round(
                connections[(_PURPOSE, own, to)],
                connections[(_PURPOSE, source, own)],
            )
            rates[source, own], latencies[own, to] = rate, latency
    except OSError as error:
        raise SessionError(f"Probing the links failed ({error}).") from None
    finally:
        mesh.disconnect()
    told = gather([rates.tolist(), latencies.tolist()])
    return Links.measured(*(np.sum([each[part] for each in told], axis=0) for part in (0, 1)))


def _round(out: socket.socket, come: socket.socket) -> tuple[float, float]:
    """bit/s of what comes in, and the seconds one way of what goes out."""
    failed: list[OSError] = []
    latencies = []

    def send() -> None:
        try:
            for _ in range(_PINGS):
                begin = time.monotonic()
                out.sendall(b"?")
                receive(out, 1)
                latencies.append((time.monotonic() - begin) / 2)
            out.sendall(bytes(_WARM_BYTES + PROBE_BYTES))
        except OSError as error:
            failed.append(error)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        for _ in range(_PINGS):
            receive(come, 1)
            come.sendall(b"!")
        buffer = memoryview(bytearray(_WARM_BYTES + PROBE_BYTES))
        receive_into(come, buffer[:_WARM_BYTES])
        begin = time.monotonic()
        receive_into(come, buffer[_WARM_BYTES:])
        took = time.monotonic() - begin
    finally:
        sender.join()
    if failed:
        raise failed[0]
    return PROBE_BYTES * 8 / took, min(latencies)
