"""The cost of an ACK, in instructions on its whole way through TCP, next to the base's."""

from __future__ import annotations

import statistics

import pytest
from bench.bench_cc import ACK_BYTES, ARMS, SENDING, SLOW, WAY, Arm, measure, tracer_ns

from mltcp_tools.kernel.backends import get_backend

pytestmark = pytest.mark.guest(icount=True)

BOUNDS = {
    Arm("mltcp_reno", "reno"): 1.01,
    Arm("mltcp", "reno"): 1.01,
    Arm("mltcp_reno", "reno", True): 1.045,
    Arm("mltcp", "reno", True): 1.09,
    Arm("mltcp_cubic", "cubic"): 1.01,
    Arm("mltcp_cubic", "cubic", True): 1.055,
}
"""Times the base's. A flow without a job costs nothing; the others, little more than was seen on
kernel 6.1: two indirect calls for each ACK, and what a sample of the delay takes."""


def test_no_ack_costs_more_instructions_than_it_did() -> None:
    backend = get_backend("kmod")
    backend.load()
    less = 2 * tracer_ns(backend, 3)
    found = measure(backend, 3, SLOW, ACK_BYTES, (WAY, SENDING))
    took = {arm: statistics.median(found[arm]) - less for arm in ARMS}
    ratios = {arm: took[arm] / took[Arm(arm.base, arm.base)] for arm in BOUNDS}
    assert {str(arm): ratio for arm, ratio in ratios.items() if ratio > BOUNDS[arm]} == {}
    backend.unload()
