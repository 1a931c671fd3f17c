# SPDX-License-Identifier: BSD-2-Clause
"""The core's formulas against an independent model in exact arithmetic; its parameters' ranges."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.core_flows import (
    INCREASE,
    MS,
    U32,
    U64,
    YIELD,
    ack,
    lib,
    make_flow,
    make_params,
    ratios,
)

from mltcp_tools.kernel.native.uapi import MECHANISMS_DEFAULT, ONE

gains = st.integers(0, 64 * ONE)


@given(st.integers(0, U64), st.integers(0, U64))
def test_ratio_is_sent_over_total_and_at_most_one(sent: int, total: int) -> None:
    ratio = lib.mltcp_ratio(sent, total)
    expected = min(Fraction(1), Fraction(sent, total)) if total else Fraction(0)
    assert 0 <= ratio <= ONE
    assert abs(Fraction(ratio, ONE) - expected) <= Fraction(2, ONE)


@given(st.integers(1, 2**46), st.integers(0, 2**46))
def test_ratio_is_exact_to_the_last_bit_for_real_sizes(total: int, sent: int) -> None:
    assert lib.mltcp_ratio(sent, total) == min(ONE, sent * ONE // total)


@given(gains, gains, ratios)
def test_gain_follows_the_formula(slope: int, intercept: int, ratio: int) -> None:
    params = make_params(slope=slope, intercept=intercept)
    assert lib.mltcp_gain(params, ratio) == min(8 * ONE, slope * ratio // ONE + intercept)


def test_gain_spans_the_published_range() -> None:
    params = make_params()
    assert lib.mltcp_gain(params, 0) == ONE // 4
    assert lib.mltcp_gain(params, ONE) == 2 * ONE


@given(gains, st.lists(st.integers(0, 10_000), max_size=200))
def test_scaling_the_increase_loses_nothing_to_rounding(gain: int, counts: list[int]) -> None:
    flow = make_flow()
    flow.gain = gain
    handed = sum(lib.mltcp_scaled_acked(flow, count) for count in counts)
    exact = Fraction(gain * sum(counts), ONE)
    assert exact - 1 < handed <= exact


@given(st.integers(0, U32), st.integers(0, ONE - 1))
def test_at_gain_one_the_count_is_the_true_one(acked: int, carry: int) -> None:
    flow = make_flow()
    flow.carry = carry
    assert lib.mltcp_scaled_acked(flow, acked) == acked


@given(st.integers(0, U32), gains)
def test_the_scaled_count_never_overflows(acked: int, gain: int) -> None:
    flow = make_flow()
    flow.gain = gain
    flow.carry = ONE - 1
    if gain != ONE:
        assert lib.mltcp_scaled_acked(flow, acked) <= 2**31 - 1


@given(st.integers(0, ONE), st.integers(0, ONE), ratios)
def test_between_is_linear_both_ways(low: int, high: int, ratio: int) -> None:
    exact = low + Fraction(high - low) * ratio / ONE
    assert abs(lib.mltcp_between(low, high, ratio) - exact) <= 1


@pytest.mark.parametrize(
    ("field", "most"),
    [
        ("burst_bytes", lib.MLTCP_TOTAL_MAX),
        ("gap_ns", lib.MLTCP_GAP_MAX_NS),
        ("slope", 8 * ONE - ONE // 4),
        ("intercept", 8 * ONE - 7 * ONE // 4),
        ("yield_max", ONE),
    ],
)
def test_parameters_are_valid_up_to_their_maximum(field: str, most: int) -> None:
    assert lib.mltcp_params_valid(make_params(**{field: most}))
    assert not lib.mltcp_params_valid(make_params(**{field: most + 1}))


@pytest.mark.parametrize("field", ["slope", "intercept", "yield_min", "yield_max"])
def test_parameters_out_of_range_are_invalid(field: str) -> None:
    assert lib.mltcp_params_valid(make_params())
    assert not lib.mltcp_params_valid(make_params(**{field: U32}))


def test_whoever_sets_what_congestion_control_stays_on() -> None:
    """An eBPF map or a module's parameter has no check of its own."""
    params, flow = make_params(slope=64 * ONE, intercept=64 * ONE), make_flow()
    assert not lib.mltcp_params_valid(params)
    flow.delay.full_us = 1000
    for sent in range(0, 1_100_000, 50_000):
        ack(flow, params, MS + sent, sent)
        assert flow.gain == 8 * ONE


@pytest.mark.parametrize(
    ("mechanisms", "valid"), [(0, 1), (5, 1), (2, 0), (8, 0), (1 << 31, 1), (1 << 31 | 1, 0)]
)
def test_unknown_mechanisms_are_invalid(mechanisms: int, valid: int) -> None:
    assert lib.mltcp_params_valid(make_params(mechanisms=mechanisms)) == valid


@pytest.mark.parametrize(
    ("fields", "is_open"),
    [
        ({}, True),
        ({"slope": 7 * ONE // 4 + 1}, False),
        ({"intercept": ONE // 4 + 1, "slope": 0}, False),
        ({"intercept": 0, "slope": 0}, True),
        ({"mechanisms": INCREASE | YIELD}, True),
    ],
)
def test_non_administrator_cannot_exceed_default_parameters(
    fields: dict[str, int], is_open: bool
) -> None:
    params = make_params(**({"mechanisms": MECHANISMS_DEFAULT} | fields))
    assert bool(lib.mltcp_params_open(params, make_params())) == is_open
