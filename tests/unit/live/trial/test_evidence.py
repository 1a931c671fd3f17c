# SPDX-License-Identifier: BSD-2-Clause
"""The random order and what it proves."""

from __future__ import annotations

import math
import random

import pytest

from mltcp_tools.live.trial.evidence import difference, spread_of_periods
from mltcp_tools.live.trial.order import Order, draw


def test_an_order_is_balanced_and_there_are_as_many_as_there_are() -> None:
    for seed in range(20):
        order = draw(8, random.Random(seed))
        assert sum(order.first) == 4
    assert order.count == len(set(order.others())) == 70
    more = order.more(random.Random(1))
    assert more.count == len(set(more.others())) == 140
    assert more.first in set(more.others())


def test_of_very_many_orders_a_sample_stands_for_all() -> None:
    order = draw(20, random.Random(1))
    found = list(order.others())
    assert order.count == math.comb(20, 10)
    assert (len(found), found[0]) == (4000, order.first)
    assert {sum(each) for each in found} == {10}
    assert found == list(order.others())


def test_the_p_value_is_the_share_of_orders() -> None:
    order = Order((True, False, True, False, True, False, True, False), 8)
    found = difference([0.1, 0.2, 0.1, 0.2, 0.1, 0.2, 0.1, 0.2], order, range(8))
    # Only this order and its mirror image are as far off: 2 of 70.
    assert found.p == pytest.approx(2 / 70)
    assert found.proven
    assert found.mean == pytest.approx(0.15)
    assert found.low < found.mean < found.high
    assert not difference([0.1, -0.1] * 4, order, range(8)).proven


def test_both_ends_of_the_interval_are_where_the_test_periods() -> None:
    source = random.Random(4)
    order = draw(8, source)
    values = [source.gauss(0.05, 0.03) for _ in range(8)]
    found = difference(values, order, range(8))
    for end, inside in ((found.low, 1), (found.high, -1)):
        just_in = difference([each - end - inside * 1e-6 for each in values], order, range(8))
        just_out = difference([each - end + inside * 1e-6 for each in values], order, range(8))
        assert just_in.p > 0.05 >= just_out.p


def test_with_too_few_valid_rounds_nothing_is_proven() -> None:
    order = draw(8, random.Random(1))
    found = difference([0.3, 0.3, 0.3], order, [0, 1, 2])
    assert (found.proven, found.low, found.high) == (False, -math.inf, math.inf)
    assert difference([], order, []).p == 1.0


def test_slow_noise_counts_for_more_than_quick_noise() -> None:
    source = random.Random(1)
    quick = [1 + source.gauss(0, 0.1) for _ in range(400)]
    level, slow = 0.0, []
    for _ in range(400):
        level = 0.95 * level + math.sqrt(1 - 0.95**2) * source.gauss(0, 0.1)
        slow.append(1 + level)
    assert spread_of_periods(quick, 100) == pytest.approx(0.1 * math.sqrt(2 / 100), rel=0.35)
    assert spread_of_periods(slow, 100) > 2 * spread_of_periods(quick, 100)
