# SPDX-License-Identifier: BSD-2-Clause
"""A collective that fails at some ranks, in each step of a scenario of reductions: nothing is
mispaired.

Ranks are threads, and their group a rendezvous that says so where two of them do different things.
"""

from __future__ import annotations

import itertools
import threading
import warnings
from typing import Any

import pytest
from support.aggregation.threads import Ranks
from train.meeting_group import MeetingGroup

torch = pytest.importorskip("torch", reason="torch is not installed; run scripts/setup --train")

from mltcp_tools.collectives import auto as auto_module  # noqa: E402
from mltcp_tools.collectives import reducer as reducer_module  # noqa: E402
from mltcp_tools.collectives.auto import ROUNDS, WATCHED, Auto, share_lost  # noqa: E402
from mltcp_tools.collectives.collective import (  # noqa: E402
    Collective,
    CollectiveError,
    Setting,
    Sum,
)
from mltcp_tools.collectives.library import How  # noqa: E402
from mltcp_tools.collectives.path_selection import BLOCKS  # noqa: E402
from mltcp_tools.collectives.reducer import Reducer  # noqa: E402
from mltcp_tools.collectives.session import Endpoint, SessionError  # noqa: E402

WORLD = 3
STEPS = 9
"""Reductions of the scenario below that go by the collective."""


class Plan:
    """A failure: its step, and the ranks that have its sum all the same."""

    def __init__(self, step: int, finish: set[int]) -> None:
        self.step, self.finish = step, finish
        self.parts: dict[int, dict[int, Any]] = {}
        self.came = threading.Condition()
        self.broken = False

    def sum_of(self, step: int, rank: int, tensor: Any) -> Any:
        """The sum of all ranks' parts of a step; SessionError once it is broken."""
        with self.came:
            self.parts.setdefault(step, {})[rank] = tensor.clone()
            self.came.notify_all()
            self.came.wait_for(lambda: self.broken or len(self.parts[step]) == WORLD, 10)
            if len(self.parts[step]) < WORLD:
                raise SessionError("The aggregator is gone.")
            if step == self.step and rank not in self.finish:
                self.broken = True
                self.came.notify_all()
                raise SessionError("The aggregator is gone.")
            parts = [self.parts[step][each] for each in range(WORLD)]
            return sum(parts[1:], start=parts[0])


def failing(plan: Plan, rank: int) -> type[Collective]:
    class Failing(Collective):
        name = "failing"
        at_aggregator = True
        joins = 0

        def __init__(self, setting: Setting) -> None:
            super().__init__(setting)
            type(self).joins += 1
            self._step = 0 if self.joins == 1 else 1000  # a new job, which doesn't fail

        def join(self) -> None:
            if self.joins > 1:
                plan.broken = False

        def over(self) -> str:
            return "The aggregator is gone." if plan.broken and self._step < 1000 else ""

        @classmethod
        def takes(cls, tensor: Any) -> bool:
            return bool(tensor.dtype != torch.float64)

        def reduce(self, tensor: Any, result: Any, how: How) -> Sum | None:
            total = plan.sum_of(self._step, rank, tensor)
            self._step += 1
            result.copy_(total.view(-1))
            tensor.copy_(total / WORLD if how is How.AVERAGE else total)
            result.copy_(tensor.view(-1))
            return Sum(result)

    return Failing


def scenario(reducer: Reducer, rank: int) -> list[Any]:
    """Floats, words by the group, integers: what a training may have, one after the other."""
    found: list[Any] = []
    for turn in range(3):
        dense = torch.arange(5.0) + rank + turn
        found.append(reducer.all_reduce(dense, How.SUM))
        found.append(reducer.all_reduce(torch.ones(3, 2) * turn, How.AVERAGE))
        found.append(reducer.run(reducer.by_group, lambda: reducer.group.tell("elsewhere")))
        found.append(reducer.all_reduce(torch.arange(7, dtype=torch.int32) * rank, How.SUM))
    found += [reducer.all_reduce(torch.ones(3), How.SUM) for _ in range(8)]
    return [future.wait() for future in found]


def with_others(reducer: Reducer, rank: int, others: threading.Barrier) -> list[Any]:
    """A dense reduction per step, after which all ranks meet elsewhere, as for DDP's buffers."""
    found = []
    for turn in range(STEPS):
        found.append(reducer.all_reduce(torch.arange(4.0) + rank * turn, How.SUM).wait())
        others.wait(20)
    return found


def run(plan: Plan, others: threading.Barrier | None = None) -> list[Any]:
    def work(rank: int, gather: Any) -> Any:
        group: Any = MeetingGroup(rank, WORLD, gather)
        setting = Setting(group, 5.0, Endpoint("127.0.0.1", 1))
        reducer = Reducer(failing(plan, rank), setting)
        try:
            found = with_others(reducer, rank, others) if others else scenario(reducer, rank)
            return found, reducer.algorithm, reducer.why_gloo
        finally:
            reducer.close()

    return Ranks(WORLD).run(work)


def same(one: list[Any], other: list[Any]) -> bool:
    return all(
        torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b
        for a, b in zip(one, other, strict=True)
    )


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for the aggregator again after few reductions, and find it."""
    for module in (reducer_module, auto_module):
        monkeypatch.setattr(module, "LEAST_PAUSE", 4)
        monkeypatch.setattr(module, "MOST_PAUSE", 4)
    monkeypatch.setattr(reducer_module, "_answers", lambda endpoint: True)


FINISHERS = [
    set(some) for size in range(WORLD) for some in itertools.combinations(range(WORLD), size)
]


@pytest.mark.parametrize("step", range(STEPS))
@pytest.mark.parametrize("finish", FINISHERS, ids=str)
def test_wherever_it_fails_all_sums_are_right(step: int, finish: set[int]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        well = run(Plan(-1, set()))
        ranks = run(Plan(step, finish))
    assert not [each for each in (*well, *ranks) if isinstance(each, Exception)], ranks
    for found, algorithm, _ in ranks:
        assert same(found, well[0][0])
        assert algorithm == "failing"  # it was found again


@pytest.mark.parametrize("step", [0, 4, STEPS - 1])
@pytest.mark.parametrize("finish", FINISHERS, ids=str)
def test_ranks_that_wait_elsewhere_come_to_those_that_lack_a_sum(
    step: int, finish: set[int]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        ranks = run(Plan(step, finish), threading.Barrier(WORLD))
    assert not [each for each in ranks if isinstance(each, Exception)], ranks
    for found, *_ in ranks:
        assert same(found, [3 * torch.arange(4.0) + 3 * turn for turn in range(STEPS)])


def test_unequal_sizes_end_in_a_sentence_on_every_rank() -> None:
    plan = Plan(0, set())

    def work(rank: int, gather: Any) -> str:
        group: Any = MeetingGroup(rank, WORLD, gather)
        reducer = Reducer(failing(plan, rank), Setting(group, 5.0))
        try:
            with pytest.raises(CollectiveError) as caught:
                reducer.all_reduce(torch.ones(10 + (rank == 2)), How.SUM).wait()
            return str(caught.value)
        finally:
            reducer.close()

    for sentence in Ranks(WORLD).run(work):
        assert "rank 0 for the sum of 10 float32, rank 2 for the sum of 11 float32" in sentence


@pytest.mark.parametrize("error", [SessionError("Refused."), TypeError("bytes"), OSError(5, "x")])
def test_one_rank_that_cannot_join_has_all_go_by_gloo(error: Exception) -> None:
    plan = Plan(-1, set())

    def work(rank: int, gather: Any) -> Any:
        class Refused(failing(plan, rank)):  # type: ignore[misc]
            def join(self) -> None:
                if rank == 1:
                    raise error

        group: Any = MeetingGroup(rank, WORLD, gather)
        reducer = Reducer(Refused, Setting(group, 5.0))
        try:
            found = reducer.all_reduce(torch.arange(4.0), How.SUM).wait()
            return found.tolist(), reducer.algorithm
        finally:
            reducer.close()

    with pytest.warns(RuntimeWarning, match="isn't used"):
        ranks = Ranks(WORLD).run(work)
    assert ranks == [([0.0, 3.0, 6.0, 9.0], "gloo")] * WORLD


def test_auto_looks_for_an_aggregator_before_each_trial() -> None:
    """It isn't there at first, nor when it is looked for after four iterations, but after eight."""
    plan = Plan(-1, set())

    def work(rank: int, gather: Any) -> list[bool]:
        class Later(failing(plan, rank)):  # type: ignore[misc]
            def join(self) -> None:
                if self.joins < 3:
                    raise SessionError("No aggregator answers.")

        group: Any = MeetingGroup(rank, WORLD, gather)
        reducer = Reducer(Later, Setting(group, 5.0, Endpoint("127.0.0.1", 1)))
        auto, ways = Auto(reducer, ""), []
        try:
            for _ in range(7 + 2 * ROUNDS):
                auto.begin()
                ways.append(auto.ours)
                tensor = torch.ones(3)
                if auto.takes(tensor):
                    reducer.all_reduce(tensor, How.SUM).wait()
                auto._ended = auto._begun + 0.1
            return ways
        finally:
            reducer.close()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        ranks = Ranks(WORLD).run(work)
    assert ranks == [[False] * (7 + ROUNDS) + [True] * ROUNDS] * WORLD


@pytest.mark.parametrize(("slow_s", "turns"), [(3.0, 1), (0.3, 2 * ROUNDS)])
def test_auto_leaves_what_has_become_slow(slow_s: float, turns: int) -> None:
    """One rank alone is slow; the job's own way takes 0.2 s, ours took 0.1 s until then."""
    plan, first_slow = Plan(-1, set()), 30

    def work(rank: int, gather: Any) -> list[bool]:
        group: Any = MeetingGroup(rank, WORLD, gather)
        reducer = Reducer(failing(plan, rank), Setting(group, 5.0))
        auto, ways = Auto(reducer, ""), []
        try:
            for number in range(first_slow + 2 * WATCHED + 5 * ROUNDS):
                auto.begin()
                ways.append(auto.ours)
                tensor = torch.ones(3)
                if auto.takes(tensor):
                    reducer.all_reduce(tensor, How.SUM).wait()
                is_slow = rank == 1 and number >= first_slow
                auto._ended = auto._begun + ((slow_s if is_slow else 0.1) if auto.ours else 0.2)
            return ways
        finally:
            reducer.close()

    ranks = Ranks(WORLD).run(work)
    assert ranks == [ranks[0]] * WORLD
    assert all(ranks[0][first_slow - 1 : first_slow])
    # Watched for up to 15 of them, as half of eight are slow; then those of a trial.
    after = ranks[0][first_slow:]
    assert sum(after) <= 2 * WATCHED - 1 + turns
    assert not any(after[-ROUNDS:])


@pytest.mark.parametrize("first_wide", [0, 20])
def test_auto_leaves_short_floats_that_lose_values(first_wide: int) -> None:
    """The gradients of one rank alone have a wide range, from the beginning or later."""
    plan = Plan(-1, set())

    def work(rank: int, gather: Any) -> Any:
        group: Any = MeetingGroup(rank, WORLD, gather)
        reducer = Reducer(failing(plan, rank), Setting(group, 5.0))
        auto, ways = Auto(reducer, ""), []
        draw = torch.Generator().manual_seed(rank)
        try:
            for number in range(first_wide + 2 * WATCHED + len(BLOCKS) * ROUNDS):
                auto.begin()
                ways.append(auto.ours)
                tensor = torch.randn(1000, generator=draw)
                if rank == 1 and number >= first_wide:
                    tensor = (3 * tensor).exp()
                tensor = tensor.bfloat16()
                if auto.takes(tensor):
                    reducer.all_reduce(tensor, How.SUM).wait()
                auto._ended = auto._begun + (0.1 if auto.ours else 0.2)
            return ways, auto.why
        finally:
            reducer.close()

    ranks = Ranks(WORLD).run(work)
    assert [ways for ways, _ in ranks] == [ranks[0][0]] * WORLD
    ways, why = ranks[0]
    assert any(ways[:first_wide]) == (first_wide > 0)
    assert not any(ways[first_wide + WATCHED :])
    assert "of a bucket's short floats would become zero" in why


def test_share_of_lost_short_floats_is_what_a_sum_loses() -> None:
    draw = torch.Generator().manual_seed(1)
    for spread, low, high in ((0.1, 0.0, 0.0), (2.0, 0.05, 0.35), (3.0, 0.4, 0.8)):
        tensor = (spread * torch.randn(70_400, generator=draw)).exp().bfloat16()
        assert low <= share_lost(tensor, 704, 4) <= high
    for values in (torch.zeros(5), torch.zeros(0), torch.full((5,), torch.nan)):
        assert share_lost(values.half(), 704, 4) == 0


def test_permanent_failure_is_retried_ever_less_and_said_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reducer_module, "MOST_PAUSE", 16)
    plan = Plan(-1, set())

    def work(rank: int, gather: Any) -> list[int]:
        class Never(failing(plan, rank)):  # type: ignore[misc]
            def join(self) -> None:
                raise SessionError("Packets don't pass.")

        group: Any = MeetingGroup(rank, WORLD, gather)
        reducer = Reducer(Never, Setting(group, 5.0, Endpoint("127.0.0.1", 1)))
        joined = []
        try:
            for _ in range(45):
                reducer.all_reduce(torch.ones(3), How.SUM).wait()
                joined.append(Never.joins)
            return [joined.index(count) + 1 for count in sorted(set(joined))]
        finally:
            reducer.close()

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        ranks = Ranks(WORLD).run(work)
    assert ranks == [[1, 8, 24, 40]] * WORLD
    assert [str(each.message) for each in said] == [
        "The collective `failing` isn't used: Packets don't pass."
    ]
