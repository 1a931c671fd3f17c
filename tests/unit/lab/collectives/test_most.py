"""The least time of an all-reduce, and how much sooner than a ring it can be."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mltcp_tools.collectives.adaptive.links import Links
from mltcp_tools.collectives.adaptive.links import bound_s as bound_of_links
from mltcp_tools.collectives.bounds import Rates, aggregated_bound_s, hosts_bound_s
from mltcp_tools.collectives.registry import COLLECTIVES
from mltcp_tools.lab.collectives.most import least_s, most, shares_of
from mltcp_tools.lab.collectives.replay import Replay

SIZE = 1e6


@settings(max_examples=60)
@given(st.lists(st.floats(1e6, 1e9), min_size=2, max_size=7))
def test_the_closed_form_is_the_smallest_cut(rates: list[float]) -> None:
    links = Links.star(np.array(rates))
    assert hosts_bound_s(rates, SIZE) == pytest.approx(bound_of_links(links, SIZE))


@pytest.mark.parametrize(("ranks", "gain"), [(2, 1.0), (4, 1.5), (8, 1.75)])
def test_one_link_at_a_quarter_allows_what_an_aggregator_does(ranks: int, gain: float) -> None:
    found = most(ranks, shares_of(ranks, 0.25, None))
    assert (found.aggregated, found.hosts, found.hosts_by_time) == pytest.approx((gain,) * 3)


def test_equal_links_leave_hosts_nothing_to_gain() -> None:
    found = most(8, shares_of(8, 1.0, None))
    assert (found.aggregated, found.hosts) == pytest.approx((1.75, 1.0))


def test_a_trace_gains_as_much_as_its_slow_steps_weigh() -> None:
    """Four ranks gain 1.5 where a link is at half of the others' rate or less, else little."""
    replay = Replay([1.0, 0.5], step_s=1)
    found = most(4, shares_of(4, 1.0, replay))
    assert found.hosts == pytest.approx((1.5 + 3) / (1.5 + 2))
    assert found.hosts_by_time == pytest.approx((1 / 1.5 + 1 / 2) / (1 / 1.5 + 1 / 3))


def test_a_slower_link_delays_what_is_under_way() -> None:
    history = [(10.0, [8e6, 8e6]), (11.0, [4e6, 8e6]), (20.0, [8e6, 8e6])]

    def whole_s(rates: Rates) -> float:
        return aggregated_bound_s(rates, 1e6)

    assert least_s(10.0, history, whole_s) == pytest.approx(1.0)
    assert least_s(10.5, history, whole_s) == pytest.approx(0.5 + 1.0)
    assert least_s(19.0, history, whole_s) == pytest.approx(1.0 + 0.5)
    assert least_s(25.0, history, whole_s) == pytest.approx(1.0)


@pytest.mark.parametrize("name", [name for name, each in COLLECTIVES.items() if each.dense])
def test_zeros_are_left_out_of_the_bound_of_those_who_leave_them_out(name: str) -> None:
    collective = COLLECTIVES[name]
    dense = COLLECTIVES[collective.dense or ""]
    rates = [8e6] * 3
    assert collective.bound_s(rates, SIZE, 0.1) == pytest.approx(
        0.1 * dense.bound_s(rates, SIZE, 0.1)
    )
