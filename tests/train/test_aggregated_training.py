# SPDX-License-Identifier: BSD-2-Clause
"""Real training whose gradients are summed up by the aggregator, and what comes when that fails.

A small network over links of namespaces; the line `mc.enable(model, …)` is all that differs.
"""

from __future__ import annotations

from typing import Any

import pytest
from train.aggregated import WORLD, assert_alike, finish, losses, star, start, train

from mltcp_tools.collectives.auto import ROUNDS, SETTLE
from mltcp_tools.collectives.path_selection import BLOCKS
from mltcp_tools.lab.collectives.bench_here import aggregator


def test_auto_tries_trees_where_measured_links_promise_a_gain() -> None:
    """Without an aggregator, around equal links and then one of a quarter of their rate."""
    steps, found = SETTLE + ROUNDS * len(BLOCKS) + 1, {}
    for slowest in (100_000_000, 25_000_000):
        with star([slowest] + [100_000_000] * 3) as (net, _):
            ranks = start(net, "auto", steps, WIDTH="400", AGGREGATOR="")
            lines, errors = finish(ranks)
        assert not any(process.returncode for process in ranks), errors
        assert_alike(lines, steps)
        ways = used(lines)
        assert ways == [ways[0]] * 4
        found[slowest] = ways[0], losses(lines, steps), errors[0]
    (equal, losses_equal, why), (slow, losses_slow, _) = found.values()
    assert equal == ["own"] * steps
    assert "no trees are faster on the links as measured" in why
    assert slow[: SETTLE + ROUNDS + 1] == ["own"] * (SETTLE + ROUNDS) + ["adaptive"]
    assert losses_slow == pytest.approx(losses_equal, rel=1e-4)


def test_error_feedback_trains_with_a_tenth_of_the_gradients() -> None:
    with star() as (net, name), aggregator(net, name, "xdp"):
        lines = train(net, "aggregated", TOP_K="0.1")
    assert_alike(lines)
    assert losses(lines)[-1] < losses(lines)[0]


def used(lines: list[list[dict[str, Any]]]) -> list[list[str]]:
    return [[line["algorithm"] for line in each[:-1]] for each in lines]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_auto_tries_the_aggregator_by_turns_with_what_was_there(dtype: str) -> None:
    with star() as (net, name), aggregator(net, name, "xdp"):
        ranks = start(net, "auto", DTYPE=dtype)
        lines, errors = finish(ranks)
    assert not any(process.returncode for process in ranks), errors
    assert_alike(lines)
    ways = used(lines)
    assert ways[1:] == ways[:-1]  # all ranks decide alike
    blocks = [SETTLE + ROUNDS * turn for turn in range(2)]
    assert ways[0][: blocks[1]] == ["own"] * blocks[1]
    assert ways[0][blocks[1]] == "aggregated"  # one that takes four times as long ends the trial
    assert set(ways[0][SETTLE + ROUNDS * len(BLOCKS) :]) in ({"own"}, {"aggregated"})
    assert "by `aggregated`, for" in errors[0]


def test_auto_leaves_long_floats_alone() -> None:
    with star() as (net, name), aggregator(net, name, "xdp"):
        ranks = start(net, "auto", steps=5, DTYPE="float64")
        lines, errors = finish(ranks)
    assert not any(process.returncode for process in ranks), errors
    assert_alike(lines, 5)
    assert used(lines) == [["own"] * 5] * WORLD
    assert "none of the gradients is of a type that `aggregated` adds as it is" in errors[0]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_short_floats_train_at_the_aggregator_as_by_gloo(dtype: str) -> None:
    found = {}
    with star() as (net, name), aggregator(net, name, "xdp"):
        for way in ("gloo", "aggregated"):
            ranks = start(net, way, DTYPE=dtype)
            found[way], errors = finish(ranks)
            assert not any(process.returncode for process in ranks), errors
    assert_alike(found["aggregated"])
    assert {line["algorithm"] for line in found["aggregated"][0][:-1]} == {"aggregated"}
    assert losses(found["aggregated"]) == pytest.approx(losses(found["gloo"]), rel=0.02)


def test_the_first_rank_dies_that_plans_the_trees() -> None:
    with star() as (net, _):
        lines, errors = finish(start(net, "adaptive", steps=8, FAULT="0:3"))
    assert [len(each) for each in lines] == [3] * WORLD
    for rank in (1, 2):
        assert "a rank is gone or silent" in errors[rank]


def test_a_rank_that_dies_ends_the_training_with_its_name() -> None:
    with star() as (net, name), aggregator(net, name, "xdp"):
        ranks = start(net, "aggregated", FAULT="1:5")
        lines, errors = finish(ranks)
    assert [process.returncode != 0 for process in ranks] == [True] * WORLD
    assert len(lines[0]) == 5
    for rank in (0, 2):
        assert "Rank 1 left" in errors[rank]
