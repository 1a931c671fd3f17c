# SPDX-License-Identifier: BSD-2-Clause
"""Patterns: what their tasks add up to, and that no rank knows what it can't know."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mltcp_tools.base.errors import UsageError
from mltcp_tools.lab.emulator.patterns import KINDS, Pattern, RankTask, connections, sizes

SIZE = 4_800_000


def longest(tasks: Sequence[RankTask], weight: str) -> float:
    """The heaviest chain of tasks, each of which waits for the one before."""
    upto: list[float] = []
    for task in tasks:
        own = task.share if weight == "share" else float(task.to is not None)
        upto.append(own + max((upto[before] for before in task.after), default=0.0))
    return max(upto)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("flows", [1, 3])
def test_tasks_wait_only_for_what_ends_at_their_rank(kind: str, flows: int) -> None:
    tasks = Pattern(kind, 4, 3).tasks(SIZE, flows)
    for number, task in enumerate(tasks):
        assert all(before < number for before in task.after)
        assert all(tasks[before].ends_at == task.rank for before in task.after)
    for rank in range(4):
        assert sum(task.share for task in tasks if task.rank == rank) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("pattern", "each", "count"),
    [
        (Pattern("ring", 4), SIZE * 6 // 4, 4),
        (Pattern("ring", 8, 3), SIZE * 14 // 8, 8),
        (Pattern("tree", 7, 4), SIZE, 12),
        (Pattern("experts", 4, 2), SIZE // 3, 12),
        (Pattern("pipeline", 4, 6), SIZE, 6),
        # gathered twice, but for the last unit, and reduced once
        (Pattern("sharded", 4, 4), SIZE * (3 * 4 - 1) // 4 * 3 // 4, 4),
    ],
    ids=lambda value: value.kind if isinstance(value, Pattern) else None,
)
def test_connections_carry_what_the_collective_needs(
    pattern: Pattern, each: int, count: int
) -> None:
    tasks = pattern.tasks(SIZE)
    assert len(connections(tasks)) == count
    assert sizes(tasks) == [each] * count


def test_ring_takes_its_steps_one_after_another() -> None:
    assert longest(Pattern("ring", 8).tasks(SIZE), "messages") == 14


def test_tree_is_as_deep_as_its_ranks_make_it() -> None:
    assert longest(Pattern("tree", 7).tasks(SIZE), "messages") == 4  # two up, two down


def test_pipeline_fills_and_drains() -> None:
    tasks = Pattern("pipeline", 4, 6).tasks(SIZE)
    assert longest(tasks, "share") == pytest.approx((6 + 4 - 1) / 6)


def test_shards_are_gathered_while_others_are_computed() -> None:
    tasks = Pattern("sharded", 4, 6).tasks(SIZE)
    computing = [n for n, task in enumerate(tasks) if task.to is None and task.rank == 0]
    first, second = tasks[computing[0]], tasks[computing[1]]
    gathered = [before for before in second.after if tasks[before].to is not None]
    assert gathered
    assert not set(gathered) & set(first.after)
    assert computing[0] not in {before for n in gathered for before in tasks[n].after}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (("circle", 4, 1), "one of ring"),
        (("ring", 1, 1), "2 to 64 ranks"),
        (("tree", 4, 300), "1 to 256 pieces"),
    ],
)
def test_impossible_patterns_are_refused(values: tuple[str, int, int], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Pattern(*values)


def test_messages_too_small_for_their_record_are_refused() -> None:
    with pytest.raises(UsageError, match="64 is the least"):
        Pattern("ring", 8, 16).tasks(1000)
