# SPDX-License-Identifier: BSD-2-Clause
"""The core's boundaries of iterations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.core_flows import MS, U64, ack, lib, make_flow, make_params, times

from mltcp_tools.kernel.native.uapi import ONE


def test_an_iteration_may_pass_four_gibibytes() -> None:
    params = make_params(burst_bytes=10 * 2**32)
    flow = make_flow()
    ack(flow, params, MS, 0)
    ack(flow, params, 2 * MS, 5 * 2**32)
    assert flow.ratio == ONE // 2
    assert lib.mltcp_sent(flow) == 5 * 2**32


def test_the_first_ack_opens_iteration_one_with_its_bytes() -> None:
    params, flow = make_params(), make_flow(acked=500)
    assert ack(flow, params, 10 * MS, 2000)
    assert flow.iteration == 1
    assert lib.mltcp_sent(flow) == 1500


def test_a_gap_before_sending_again_opens_an_iteration() -> None:
    params, flow = make_params(), make_flow()
    ack(flow, params, 0, 1000)
    ack(flow, params, 1 * MS, 2000)
    assert not ack(flow, params, 102 * MS, 3000, sent=100 * MS)  # 99 ms: not yet
    assert ack(flow, params, 203 * MS, 4000, sent=202 * MS)
    assert flow.iteration == 2
    assert lib.mltcp_sent(flow) == 1000  # the bytes of the opening ACK count
    assert not ack(flow, params, 204 * MS, 5000)


@given(st.integers(1, 2**62), st.none() | st.integers(0, 99 * MS))
def test_a_retransmission_timeout_never_opens_an_iteration(stall: int, pause: int | None) -> None:
    # Whether all was acknowledged before it, so that sending began anew within the burst, or not.
    params, flow = make_params(), make_flow()
    ack(flow, params, 0, 1000)
    ack(flow, params, MS, 2000)
    sent = None if pause is None else MS + pause
    assert not ack(flow, params, MS + (pause or 0) + stall, 3000, sent=sent)
    assert flow.iteration == 1


@given(times, times, st.none() | times)
def test_a_clock_that_steps_back_opens_nothing_and_is_not_kept(
    first: int, second: int, sent: int | None
) -> None:
    params, flow = make_params(), make_flow()
    ack(flow, params, first, 1000)
    boundary = ack(flow, params, second, 2000, sent=sent)
    assert boundary == (sent is not None and sent - first >= params.gap_ns)
    assert flow.last_ns == max(first, second) or boundary


@given(st.lists(st.integers(0, U64), min_size=1, max_size=20))
def test_an_acknowledged_total_that_steps_back_is_ignored(totals: list[int]) -> None:
    params, flow = make_params(), make_flow()
    for step, total in enumerate(totals):
        ack(flow, params, step, total)
    assert lib.mltcp_sent(flow) == max(totals)


@pytest.mark.parametrize("fields", [{"burst_bytes": 0}, {"gap_ns": 0}])
def test_without_total_or_gap_the_flow_is_its_base(fields: dict[str, int]) -> None:
    params, flow = make_params(**fields), make_flow()
    flow.delay.full_us = 1000
    ack(flow, params, 0, 500_000, rtt_us=2000, min_rtt_us=100)
    assert (flow.active, flow.gain, flow.yield_us) == (0, ONE, 0)
    assert not lib.mltcp_must_yield(flow)


def test_only_the_first_ack_opens_an_iteration_without_gap() -> None:
    params, flow = make_params(gap_ns=0), make_flow()
    ack(flow, params, 0, 1)
    assert not ack(flow, params, 2**60, 2, sent=2**59)


def test_burst_longer_than_any_iteration_falls_back_to_base() -> None:
    params, flow = make_params(burst_bytes=1000), make_flow()
    most = 1000 + 1000 // lib.MLTCP_OVERRUN
    ack(flow, params, 0, most)
    assert (flow.active, flow.ratio, flow.gain) == (1, ONE, 2 * ONE)
    flow.next_bytes = 0
    ack(flow, params, MS, most + 1)
    assert (flow.active, flow.gain) == (0, ONE)
