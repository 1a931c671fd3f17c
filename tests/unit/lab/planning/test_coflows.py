# SPDX-License-Identifier: BSD-2-Clause
"""Sincronia's order and the switch it is judged on: against the paper's example and brute force."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.mistakes import refused

from mltcp_tools.base.errors import UsageError
from mltcp_tools.cli.main import main
from mltcp_tools.lab.planning.coflows_fabric import POLICIES, completion_times
from mltcp_tools.lab.planning.coflows_trace import Coflow, Trace, read_trace
from mltcp_tools.live.priorities.coflows import bssi, levels

GBIT = 1e9
MB_S = 0.008  # what 1 MB takes at 1 Gbit/s
_EACH = ((0, 1e6), (1, 1e6), (2, 1e6))
_TWO = (Coflow(0, 0.002, (0, 1), _EACH), Coflow(1, 0.011, (0,), _EACH))
ends_as_another_arrives = Trace(3, (*_TWO, Coflow(2, 0.017, (0,), _EACH[:1])))


def papers_example(excess: float) -> list[dict[tuple[str, int], float]]:
    """Figure 1 of the paper: C1 sends from all four ports to two others each, C2-C5 from one."""
    first = {(side, port): 2.0 for side in ("ingress", "egress") for port in range(1, 5)}
    others = [{("ingress", port): 2 + excess, ("egress", port): 2 + excess} for port in range(1, 5)]
    return [first, *others]


@pytest.mark.parametrize("excess", [0.0, 0.1, 0.5])
def test_order_of_the_papers_example(excess: float) -> None:
    assert bssi(papers_example(excess)) == [1, 2, 3, 0, 4]


def test_demands_on_one_port_add_up() -> None:
    """The published code overwrites where a coflow has two flows between the same ports."""
    twice = Coflow(1, 0.0, (0, 0), ((1, 6e6),))
    assert twice.demand == {("ingress", 0): 6e6, ("egress", 1): 6e6}
    once = Coflow(2, 0.0, (0,), ((1, 4e6),))
    assert bssi([twice.demand, once.demand]) == [1, 0]


@pytest.mark.parametrize(
    ("demands", "weights"),
    [([{"a": 1.0}], [0.0]), ([{"a": -1.0}], [1.0]), ([{"a": 1.0}], [1.0, 1.0])],
)
def test_impossible_input_is_refused(demands: list[dict[str, float]], weights: list[float]) -> None:
    with pytest.raises(UsageError):
        bssi(demands, weights)


small = st.lists(
    st.dictionaries(st.integers(0, 3), st.integers(0, 9), max_size=4), min_size=1, max_size=5
)


@st.composite
def weighted(draw: st.DrawFn) -> tuple[list[dict[int, float]], list[float]]:
    demands = [{port: float(n) for port, n in each.items()} for each in draw(small)]
    weights = draw(st.lists(st.integers(1, 5), min_size=len(demands), max_size=len(demands)))
    return demands, [float(each) for each in weights]


def open_shop(demands: list[dict[int, float]], weights: list[float], order: list[int]) -> float:
    """Weighted sum of ends where ports work through the order without waiting for each other."""
    load: dict[int, float] = {}
    total = 0.0
    for index in order:
        for port, asked in demands[index].items():
            load[port] = load.get(port, 0.0) + asked
        ends = [load[port] for port, asked in demands[index].items() if asked]
        total += weights[index] * max(ends, default=0.0)
    return total


@given(weighted())
@settings(max_examples=300, deadline=None)
def test_order_is_within_twice_the_best_open_shop(
    case: tuple[list[dict[int, float]], list[float]],
) -> None:
    demands, weights = case
    order = bssi(demands, weights)
    assert sorted(order) == list(range(len(demands)))
    best = min(
        open_shop(demands, weights, list(each))
        for each in itertools.permutations(range(len(demands)))
    )
    assert open_shop(demands, weights, order) <= 2 * best * (1 + 1e-9)


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    ports = draw(st.integers(1, 4))
    places = st.lists(st.integers(0, ports - 1), min_size=1, max_size=ports, unique=True)
    coflows = []
    for name in range(draw(st.integers(1, 5))):
        received = tuple((port, draw(st.integers(1, 9)) * 1e6) for port in draw(places))
        arrival_s = draw(st.integers(0, 20)) * 1e-3
        coflows.append(Coflow(name, arrival_s, tuple(draw(places)), received))
    return Trace(ports, tuple(coflows))


@given(traces())
@settings(max_examples=200, deadline=None)
def test_schedule_is_within_four_times_the_bound(trace: Trace) -> None:
    """The best open shop on all ports bounds what any schedule reaches, from below."""
    demands = [coflow.demand for coflow in trace.coflows]
    ones = [1.0] * len(demands)
    ports = {port: number for number, port in enumerate({p for d in demands for p in d})}
    numbered = [{ports[port]: size for port, size in demand.items()} for demand in demands]
    best_bytes = min(
        open_shop(numbered, ones, list(each))
        for each in itertools.permutations(range(len(demands)))
    )
    total_s = completion_times(trace, "BSSI", GBIT).sum()
    assert best_bytes * 8e-9 * (1 - 1e-9) <= total_s <= 4 * best_bytes * 8e-9 * (1 + 1e-9)


def one_by_one(trace: Trace) -> list[float]:
    """FIFO by plain loops: each flow sends unless one before it uses one of its ports."""
    flows = [[i, e, c.name, size * 8e-9] for c in trace.coflows for i, e, size in c.flows()]
    now, ended = 0.0, {}
    while left := [flow for flow in flows if flow[3] > 1e-9]:
        sending, taken = [], set()
        for flow in left:
            ports = {("ingress", flow[0]), ("egress", flow[1])}
            if not ports & taken:
                taken |= ports
                sending.append(flow)
        step = min(flow[3] for flow in sending)
        now += step
        for flow in sending:
            flow[3] -= step
            ended[flow[2]] = now
    return [ended[coflow.name] for coflow in trace.coflows]


@given(traces())
@settings(max_examples=200, deadline=None)
def test_served_in_order_as_by_plain_loops(trace: Trace) -> None:
    assert completion_times(trace, "FIFO", GBIT) == pytest.approx(one_by_one(trace), rel=1e-6)


@given(traces(), st.sampled_from(POLICIES))
@example(ends_as_another_arrives, "fair")
@settings(max_examples=200, deadline=None)
def test_no_policy_beats_the_ports(trace: Trace, policy: str) -> None:
    """Online, a coflow takes as long as its most loaded port at least, and all of them end."""
    times_s = completion_times(trace, policy, GBIT, online=True)  # type: ignore[arg-type]
    least_s = [max(coflow.demand.values()) * 8e-9 for coflow in trace.coflows]
    assert np.isfinite(times_s).all()
    assert (times_s >= np.array(least_s) * 0.995).all()


def test_fair_shares_of_three_flows() -> None:
    """Two flows share port 0; the third has what they leave of port 1."""
    flows = [Coflow(1, 0, (0,), ((0, 1e6),)), Coflow(2, 0, (0,), ((1, 1e6),))]
    trace = Trace(2, (*flows, Coflow(3, 0, (1,), ((1, 3e6),))))
    expected = [2 * MB_S, 2 * MB_S, 4 * MB_S]
    assert completion_times(trace, "fair", GBIT) == pytest.approx(expected, rel=4e-3)


def test_online_a_short_one_overtakes() -> None:
    long, short = Coflow(1, 0, (0,), ((0, 10e6),)), Coflow(2, 0.02, (0,), ((0, 1e6),))
    trace = Trace(1, (long, short))
    times_s = completion_times(trace, "BSSI", GBIT, online=True)
    assert times_s == pytest.approx([11 * MB_S, MB_S])
    assert completion_times(trace, "FIFO", GBIT, online=True) == pytest.approx(
        [10 * MB_S, 11 * MB_S - 0.02]
    )


def test_levels_share_the_last() -> None:
    assert levels(["a", "b", "c", "d"], 3) == {"a": 0, "b": 1, "c": 2, "d": 2}
    with pytest.raises(UsageError):
        levels(["a"], 0)


@given(st.permutations("abcdef"), st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 7)))
def test_levels_follow_the_order_and_get_better_only_in_need(
    order: list[str], present: dict[str, int]
) -> None:
    found = levels(order, 8, present)
    assert [found[each] for each in order] == sorted(found.values())
    assert len(set(found.values())) == len(order)
    improved = [each for each in order if found[each] < present.get(each, 0)]
    if improved:
        assert list(found.values()) == list(range(6))


TRACE = """3 3
1 0 1 0 1 1:9.0
2 5 2 0 1 1 2:2.0
7 10 1 2 2 0:4.0 1:1.0
"""


def test_trace_and_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "trace.txt"
    file.write_text(TRACE)
    trace = read_trace(file)
    assert [coflow.name for coflow in trace.coflows] == [1, 2, 7]
    assert trace.coflows[1].arrival_s == pytest.approx(0.005)
    assert trace.coflows[1].demand == {
        ("ingress", 0): 1e6,
        ("ingress", 1): 1e6,
        ("egress", 2): 2e6,
    }
    assert main(["plan", "coflows", str(file), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["order"] == [2, 7, 1]
    assert set(document["mean_cct"]) == {"BSSI", "FIFO", "fair"}
    assert main(["plan", "coflows", str(file), "--online"]) == 0
    text = capsys.readouterr().out
    assert "order, first to last: 2, 7, 1" in text


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("", "empty"),
        ("2 2\n1 0 1 0 1 1:1\n", "announces 2"),
        ("2 1\n1 0 1 0 2 1:1\n", "line 2"),
        ("2 1\n1 0 1 0 1 7:1\n", "ports"),
        ("2 2\n1 0 1 0 1 1:1\n1 0 1 0 1 1:1\n", "two coflows"),
    ],
)
def test_broken_traces_are_refused(
    tmp_path: Path, text: str, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "trace.txt"
    file.write_text(text)
    assert place in refused(capsys, "plan", "coflows", str(file))
