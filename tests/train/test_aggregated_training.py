"""Real training whose gradients are summed up by the aggregator, and what comes when that fails.

A small network over links of namespaces; the line `mc.enable(model, …)` is all that differs.
"""

from __future__ import annotations

import json

import pytest
from train.aggregated import WORLD, assert_alike, finish, losses, star, start, train

from mltcp_tools.collectives.bench_here import aggregator


def test_training_converges_as_with_float32() -> None:
    with star() as (net, name):
        plain = train(net, "gloo")
        with aggregator(net, name, "xdp"):
            summed = train(net, "aggregated")
    assert_alike(plain)
    assert_alike(summed)
    assert {line["algorithm"] for line in summed[0][:-1]} == {"aggregated"}
    assert losses(summed) == pytest.approx(losses(plain), rel=1e-4)
    assert losses(summed)[-1] < losses(summed)[0]


def test_along_trees_for_the_links_as_measured() -> None:
    with star() as (net, _):
        lines = train(net, "adaptive")
    assert_alike(lines)
    assert {line["algorithm"] for line in lines[0][:-1]} == {"adaptive"}
    assert losses(lines)[-1] < losses(lines)[0]


def test_going_on_without_a_straggler_still_trains_one_model() -> None:
    with star() as (net, _):
        lines = train(net, "adaptive", STRAGGLER="2")
    assert_alike(lines)
    assert losses(lines)[-1] < losses(lines)[0]


def test_with_error_feedback_a_tenth_of_the_gradients_still_trains() -> None:
    with star() as (net, name), aggregator(net, name, "xdp"):
        lines = train(net, "aggregated", TOP_K="0.1")
    assert_alike(lines)
    assert losses(lines)[-1] < losses(lines)[0]


def test_without_an_aggregator_it_is_gloo_and_says_so() -> None:
    with star() as (net, _):
        ranks = start(net, "auto")
        lines, errors = finish(ranks)
    assert_alike(lines)
    assert {line["algorithm"] for line in lines[0][:-1]} == {"gloo"}
    assert "by Gloo: No aggregator answers at" in errors[0]


def test_the_aggregator_dies_and_training_goes_on() -> None:
    with star() as (net, name):
        with aggregator(net, name, "tc"):
            ranks = start(net, "auto", PAUSE="0.1")
            begun = [ranks[0].stdout.readline() for _ in range(5)]
        lines, errors = finish(ranks)
    assert not any(process.returncode for process in ranks), errors
    lines[0] = [json.loads(line) for line in begun] + lines[0]
    assert_alike(lines)
    used = [line["algorithm"] for line in lines[0][:-1]]
    assert used[0] == "aggregated"
    assert used[-1] == "gloo"
    assert "by Gloo: The" in errors[0]


def test_a_rank_that_dies_ends_the_training_with_its_name() -> None:
    with star() as (net, name), aggregator(net, name, "xdp"):
        ranks = start(net, "auto", FAULT="1:5")
        lines, errors = finish(ranks)
    assert [process.returncode != 0 for process in ranks] == [True] * WORLD
    assert len(lines[0]) == 5
    for rank in (0, 2):
        assert "Rank 1 left" in errors[rank]
