# SPDX-License-Identifier: BSD-2-Clause
"""eBPF on a kernel that takes the CPU away from a program while it runs."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Iterator

import pytest
from netns.backends_here import backend_fixture
from netns.connections import connection_here
from vm.machines import HARDENED

from mltcp_tools.kernel.backends.base import Backend, Flow

pytestmark = [pytest.mark.bpf, HARDENED]

backend = backend_fixture(names=["bpf"])

FLOWS = 40
READS = 200


def ends(flow: Flow) -> tuple[int, int, int]:
    return flow.cookie, flow.local_port, flow.remote_port


@contextlib.contextmanager
def interrupted(backend: Backend) -> Iterator[None]:
    """A process of a higher priority on the same CPU reads with the same program."""
    here = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(here)})
    child = os.fork()
    if not child:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        while True:
            began_s = time.monotonic()
            backend.flows()
            # On the slowest machine, too, it leaves half of the CPU to who is tested.
            time.sleep(random.uniform(0, 2 * (time.monotonic() - began_s)))
    try:
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.sched_setaffinity(0, here)


def test_readers_at_the_same_time_read_whole_flows(backend: Backend) -> None:
    """Wherever the one is just then when the other takes its CPU."""
    backend.load(["mltcp_reno"])
    with contextlib.ExitStack() as stack:
        for _ in range(FLOWS):
            sender, peer = stack.enter_context(connection_here("mltcp_reno"))
            sender.sendall(b"x")
            assert peer.recv(1) == b"x"
        expected = set(map(ends, backend.flows()))
        assert len(expected) == FLOWS
        with interrupted(backend):
            for _ in range(READS):
                found = set(map(ends, backend.flows()))
                assert found == expected
