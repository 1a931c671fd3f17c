"""Waiting and going on: the price of not knowing, and collectives whose late ranks lose nothing."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.aggregation.threads import Ranks

from mltcp_tools.collectives.adaptive import coordination
from mltcp_tools.collectives.adaptive.coordination import MOST_BEHIND
from mltcp_tools.collectives.adaptive.coordinator import Costs, decide, spent_s
from mltcp_tools.collectives.adaptive.mesh import Mesh
from mltcp_tools.collectives.adaptive.session import AdaptiveSession
from mltcp_tools.collectives.adaptive.stragglers import LeftBehind, StragglerSession
from mltcp_tools.collectives.session import SessionError

arrivals = st.lists(st.floats(0, 10), min_size=2, max_size=8)


@given(arrivals, st.floats(0.01, 3))
def test_never_more_than_twice_what_foresight_costs_beyond_the_collective(
    arrivals_s: list[float], whole_s: float
) -> None:
    """With foresight one waits for all, or goes at once with the first so many."""
    costs = Costs(whole_s, len(arrivals_s))
    decision = decide(arrivals_s, costs, silent_s=100.0)
    own = spent_s(decision, arrivals_s, costs)
    last = max(arrivals_s) - min(arrivals_s)
    best = last + whole_s  # what waiting for all costs
    order = sorted(arrivals_s)
    for count in range(2, len(order)):
        late = costs.partial_s(len(order) - count + 1)
        sooner = order[count - 1] - order[0] + costs.partial_s(count)
        best = min(best, max(sooner, last) + late)
    assert own <= 2 * best + 1e-9


@given(arrivals, st.floats(0.01, 3))
def test_who_takes_part_was_there_and_all_others_are_late(
    arrivals_s: list[float], whole_s: float
) -> None:
    decision = decide(arrivals_s, Costs(whole_s, len(arrivals_s)), silent_s=100.0)
    assert len(decision.ready) >= 2
    assert sorted(decision.ready + decision.late) == list(range(len(arrivals_s)))
    assert all(arrivals_s[rank] <= decision.start_s for rank in decision.ready)
    assert all(arrivals_s[rank] > decision.start_s for rank in decision.late)


def test_a_rank_that_never_comes_is_waited_for_no_longer_than_it_is_worth() -> None:
    decision = decide([0.0, 0.1, float("inf")], Costs(1.0, 3), silent_s=10.0)
    assert decision.late == (2,)
    assert decision.start_s <= 0.1 + Costs(1.0, 3).buy_s(2) + 1e-9


def run(work: Any, world: int = 3, silent_s: float | None = None) -> list[Any]:
    def make(rank: int, gather: Any) -> StragglerSession:
        session = AdaptiveSession(Mesh(rank, world, "127.0.0.1", gather, 20.0), gather)
        control = Mesh(rank, world, "127.0.0.1", gather, 20.0)
        return StragglerSession(control, session, silent_s)

    return Ranks(world).run_with(make, work)


def test_a_late_rank_holds_nobody_up_and_loses_nothing() -> None:
    steps, late_step = 6, 3
    others_done = threading.Event()
    done = threading.Barrier(3)

    def work(rank: int, session: StragglerSession) -> Any:
        sums = []
        for step in range(steps):
            if rank == 2 and step == late_step:
                assert others_done.wait(30)  # it comes when the others are a step further
            array = np.full(1000, 10.0**rank, dtype=np.float32)
            session.reduce(array)
            assert (array == array[0]).all()
            sums.append(float(array[0]))
            if rank == 0 and step == late_step:
                others_done.set()
        done.wait()  # all sums are in before anybody leaves
        return sums, session.late, {size: a[0] for size, a in session.put_off().items()}

    results = run(work)
    assert not [each for each in results if isinstance(each, Exception)], results
    for sums, _, _ in results:
        assert sums == results[0][0]  # the same at every rank
    sums = results[0][0]
    assert sums[late_step] == 11.0  # without rank 2
    late = [each[1] for each in results]
    assert late[2] >= 1
    # Each sum has each rank's value once, or it comes with a later one, or is still put off.
    rest = sum(sum(each[2].values()) for each in results)
    assert sum(sums) + rest == pytest.approx(steps * 111.0)


def test_a_rank_silent_for_the_stated_time_is_out_and_catches_up_when_it_returns() -> None:
    steps = 3 * MOST_BEHIND
    others_done = threading.Event()
    done = threading.Barrier(3)

    def work(rank: int, session: StragglerSession) -> Any:
        sums = []
        for step in range(steps):
            if rank == 2 and step == 1:
                assert others_done.wait(60)  # they go on by themselves, or this never ends
            array = np.full(1000, 10.0**rank, dtype=np.float32)
            session.reduce(array)
            sums.append(float(array[0]))
            if rank == 0 and step == steps - 1:
                others_done.set()
        done.wait()
        return sums

    results = run(work, silent_s=0.05)
    assert not [each for each in results if isinstance(each, Exception)], results
    assert results[0] == results[1] == results[2]  # it has all the sums, in their order
    assert results[0][MOST_BEHIND + 2 : steps] == [11.0] * (steps - MOST_BEHIND - 2)


def test_who_is_done_first_relays_for_those_that_are_not() -> None:
    def work(rank: int, session: StragglerSession) -> Any:
        for step in range(5):
            if rank == 2 and step > 1:
                time.sleep(0.05)
            session.reduce(np.ones(1000, dtype=np.float32))
        session.leave(30)
        return True

    assert run(work) == [True] * 3


def test_a_rank_that_is_gone_ends_it_for_all() -> None:
    def work(rank: int, session: StragglerSession) -> Any:
        if rank == 1:
            session.reduce(np.ones(1000, dtype=np.float32))
            return True
        for _ in range(500):
            try:  # the first one, too, may find it gone before its end
                session.reduce(np.ones(1000, dtype=np.float32))
            except SessionError:
                return True
            time.sleep(0.01)
        return False

    assert run(work) == [True] * 3


@pytest.mark.parametrize("seed", range(4))
def test_who_is_gone_amid_a_collective_is_out_and_the_others_agree(seed: int) -> None:
    pause_s = np.random.default_rng(seed).uniform(0, 0.2)

    def work(rank: int, session: StragglerSession) -> Any:
        if rank == 3:
            threading.Timer(pause_s, session.close).start()
        sums: list[tuple[float, int]] = []
        last = 0  # steps without it
        while last < 10:
            array = np.full(200_000, 10.0**rank, dtype=np.float32)
            try:
                ranks = session.reduce(array)
            except SessionError:
                if rank == 3:
                    return None
                raise
            assert (array == array[0]).all()
            sums.append((float(array[0]), ranks))
            last += ranks == 3
        session.leave(30)
        return sums, sum(float(each[0]) for each in session.put_off().values())

    results = run(work, 4, silent_s=5.0)
    assert results[3] is None
    assert results[0][0] == results[1][0] == results[2][0]
    sums = [each for each, _ in results[0][0]]
    assert sums[-1] < 1000
    # What the others had is in a sum or put off; what rank 3 had is there whole or not at all.
    rest = sum(each[1] for each in results[:3])
    assert (sum(sums) + rest - 111 * len(sums)) % 1000 == 0


def be_silent(session: StragglerSession, until: threading.Event) -> None:
    """As a stopped process: it answers nothing."""
    with session._saying:
        assert until.wait(60)


@pytest.mark.parametrize("kept_bytes", [None, 0])
def test_who_does_not_answer_is_out_and_comes_back_while_its_sums_are_kept(
    kept_bytes: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kept_bytes is not None:
        monkeypatch.setattr(coordination, "KEPT_BYTES", kept_bytes)
    others_go_on, steps = threading.Event(), 60

    def work(rank: int, session: StragglerSession) -> Any:
        sums, since = [], 0
        for step in range(steps):
            if rank == 2 and step == 3:
                be_silent(session, others_go_on)
            array = np.full(1000, 10.0**rank, dtype=np.float32)
            ranks = session.reduce(array)
            since += ranks == 2
            if since == 5:
                others_go_on.set()
            while since >= 5 and rank == 0 and kept_bytes is None and 2 not in session.members:
                time.sleep(0.01)  # so that it returns before the last step
            sums.append((float(array[0]), ranks))
        session.leave(30)
        return sums

    results = run(work, silent_s=0.5)
    assert results[0] == results[1]
    if kept_bytes is None:
        assert results[2] == results[0]
        assert {ranks for _, ranks in results[0]} == {2, 3}
    else:
        assert isinstance(results[2], LeftBehind)
        assert "out for too long" in str(results[2])
        assert results[0][-1] == (11.0, 2)
