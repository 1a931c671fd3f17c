# SPDX-License-Identifier: BSD-2-Clause
"""A queue that marks: what is counted, and what flows learn from it before anything is lost."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest
from netns.backends_here import backend_fixture, fresh_and_loaded
from netns.connections import connection, hold_back, send_burst

from mltcp_tools.kernel.backends.base import Backend, Job, JobParams
from mltcp_tools.kernel.congestion_controls import MECHANISMS, STANDARD
from mltcp_tools.lab.experiments.links import Link
from mltcp_tools.lab.testbed.namespaces import inside, write_sysctl
from mltcp_tools.lab.testbed.network import Dumbbell

LINK = Link(50_000_000, 200_000, aqm="threshold")
BURST = 1_000_000
GAP_S = 0.2

pytestmark = pytest.mark.bpf


@pytest.fixture
def network() -> Iterator[Dumbbell]:
    with Dumbbell(f"m{os.getpid()}", LINK, {}, 1) as found:
        yield found


backend = backend_fixture(fresh_and_loaded)


@pytest.mark.parametrize("name", STANDARD)
def test_marks_tell_what_a_full_queue_is_before_any_loss(
    network: Dumbbell, backend: Backend, name: str
) -> None:
    """On every base; so it knows what to bear of the queue, and yields to whoever is ahead."""
    params = JobParams(burst_bytes=BURST, gap_s=GAP_S, mechanisms=MECHANISMS)
    backend.set_job(Job(1, "one", params))
    hold_back(network, 150_000)  # the queue drops none of it, however late a mark is
    with connection(network, name) as sender:
        backend.tag(sender.fileno(), 1)
        for _ in range(4):
            send_burst(sender, BURST)
            time.sleep(2 * GAP_S)
        (flow,) = backend.flows()
        counters = network.counters()
    assert (counters.drops, flow.congestion_control) == (0, name)
    assert counters.marks > 0
    assert flow.losses > 0
    assert flow.full_queue_us > 0


def test_connection_without_ecn_fills_queue_that_marks_others(
    network: Dumbbell,
) -> None:
    """Packets that can't be marked pass, until the queue drops."""
    with inside(network.senders[0]):
        write_sysctl("net.ipv4.tcp_ecn", "0")
    with connection(network, "reno") as sender:
        send_burst(sender, 5 * BURST)
        counters = network.counters()
    assert counters.marks == 0
    assert counters.drops > 0
