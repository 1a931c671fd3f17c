"""Trials of `auto`: taken where they are won, left where they are lost, and cheap."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltcp_tools.collectives.trial import BLOCKS, LEAST_PAUSE, ROUNDS, SETTLE, SOONER, Trial

LENGTH = ROUNDS * len(BLOCKS)


def run(iterations: int, ours_s: Callable[[int], float], theirs_s: float) -> list[bool]:
    """Tell which iterations went our way."""
    trial, ways = Trial(), []
    for number in range(iterations):
        if number:
            trial.go_on()
        ways.append(trial.ours)
        if trial.counts:
            trial.note(ours_s(number) if trial.ours else theirs_s)
    return ways


@pytest.mark.parametrize(("ours_s", "wins"), [(0.94, True), (0.96, False), (1.3, False)])
def test_ours_is_taken_only_where_it_has_won(ours_s: float, wins: bool) -> None:
    ways = run(SETTLE + LENGTH + 10, lambda number: ours_s, 1.0)
    assert ways[:SETTLE] == [False] * SETTLE
    trial = [ours for ours in BLOCKS for _ in range(ROUNDS)]
    assert ways[SETTLE : SETTLE + LENGTH] == trial
    assert ways[SETTLE + LENGTH :] == [wins] * 10


def test_what_is_hopeless_is_not_tried_to_the_end() -> None:
    ways = run(SETTLE + LENGTH, lambda number: 3.0, 1.0)
    assert sum(ways) == ROUNDS


def test_what_has_become_slow_is_left_again_and_taken_back_when_it_is_sooner() -> None:
    slow = range(LEAST_PAUSE // 2, 3 * LEAST_PAUSE)
    ways = run(8 * LEAST_PAUSE, lambda number: 1.5 if number in slow else 0.8, 1.0)
    assert ways[LEAST_PAUSE // 2]
    assert not ways[2 * LEAST_PAUSE + 4 * LENGTH]
    assert ways[-1]


@given(st.floats(1.001 / SOONER, 100.0))
def test_what_never_wins_costs_little(ours_s: float) -> None:
    """Of 20,000 iterations, those of a few trials."""
    ways = run(20_000, lambda number: ours_s, 1.0)
    assert sum(ways) <= 0.002 * len(ways)


def test_an_outlier_decides_nothing() -> None:
    first = SETTLE + BLOCKS.index(True) * ROUNDS + 1
    assert run(SETTLE + LENGTH + 1, lambda n: 1.9 if n == first else 0.8, 1.0)[-1]
