# SPDX-License-Identifier: BSD-2-Clause
"""Trials of a way: taken where they are won, left where they are lost, and cheap."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltcp_tools.collectives.path_selection import BLOCKS, Pause, Trials

ROUNDS, SOONER, LEAST = 3, 1.05, 512
LENGTH = ROUNDS * len(BLOCKS)


def run(turns: int, ours: Callable[[int], float], theirs: float) -> list[bool]:
    """Tell which turns went our way; the first is of a trial."""
    trials, ways, due = Trials(False, ROUNDS, SOONER, Pause(LEAST, 32 * LEAST)), [], 0
    for number in range(turns):
        if number == due:
            trials.begin()
        ways.append(trials.ours)
        if trials.trying and trials.note(ours(number) if trials.ours else theirs):
            due = number + 1 + trials.pause.length
    return ways


@pytest.mark.parametrize(("ours_s", "wins"), [(0.94, True), (0.96, False), (1.3, False)])
def test_ours_is_taken_only_where_it_has_won(ours_s: float, wins: bool) -> None:
    ways = run(LENGTH + 10, lambda number: ours_s, 1.0)
    trial = [ours for ours in BLOCKS for _ in range(ROUNDS)]
    assert ways[:LENGTH] == (trial if ours_s < 1 else trial[: 2 * ROUNDS] + [False] * 2 * ROUNDS)
    assert ways[LENGTH:] == [wins] * 10


def test_what_is_hopeless_is_not_tried_to_the_end() -> None:
    ways = run(LENGTH, lambda number: 1.01, 1.0)
    assert sum(ways) == ROUNDS


def test_slow_path_is_left_and_retaken_when_faster() -> None:
    slow = range(LEAST // 2, 3 * LEAST)
    ways = run(8 * LEAST, lambda number: 1.5 if number in slow else 0.8, 1.0)
    assert ways[LEAST // 2]
    assert not ways[2 * LEAST + 4 * LENGTH]
    assert ways[-1]


@given(st.floats(1.001 / SOONER, 100.0))
def test_what_never_wins_costs_little(ours_s: float) -> None:
    """Of 20,000 iterations, those of a few trials."""
    ways = run(20_000, lambda number: ours_s, 1.0)
    assert sum(ways) <= 0.002 * len(ways)


def test_an_outlier_decides_nothing() -> None:
    first = BLOCKS.index(True) * ROUNDS + 1
    assert run(LENGTH + 1, lambda n: 1.9 if n == first else 0.8, 1.0)[-1]


@pytest.mark.parametrize("late", [0, 1, 2])
def test_a_turn_of_four_times_ends_the_trial(late: int) -> None:
    """Ours is taken, and has become slow; what theirs took is known from the trial before."""
    trials = Trials(False, ROUNDS, SOONER, Pause(LEAST, 32 * LEAST))
    trials.begin()
    while trials.trying:
        trials.note(0.5 if trials.ours else 1.0)
    assert trials.ours
    trials.begin()
    for _ in range(late):
        assert not trials.note(1.0)
    assert trials.note(4.0)
    assert not trials.ours
    assert trials.changed
    assert trials.usual(False) == 1.0


def test_the_first_turn_of_ours_may_end_the_first_trial() -> None:
    ways = run(LENGTH, lambda number: 4.0, 1.0)
    assert sum(ways) == 1
