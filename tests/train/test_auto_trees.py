# SPDX-License-Identifier: BSD-2-Clause
"""`auto` without an aggregator: trees are tried if the links as measured promise a gain."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.aggregation.threads import Ranks
from train.meeting_group import MeetingGroup

torch = pytest.importorskip("torch", reason="torch is not installed; run scripts/setup --train")

from mltcp_tools.collectives import ddp  # noqa: E402
from mltcp_tools.collectives.adaptive import session as session_module  # noqa: E402
from mltcp_tools.collectives.adaptive.collective import Adaptive  # noqa: E402
from mltcp_tools.collectives.adaptive.links import Links  # noqa: E402
from mltcp_tools.collectives.aggregated import Aggregated  # noqa: E402
from mltcp_tools.collectives.auto import ROUNDS, SETTLE, WATCHED, Auto  # noqa: E402
from mltcp_tools.collectives.collective import Setting  # noqa: E402
from mltcp_tools.collectives.gloo import Gloo  # noqa: E402
from mltcp_tools.collectives.library import How  # noqa: E402
from mltcp_tools.collectives.path_selection import BLOCKS  # noqa: E402
from mltcp_tools.collectives.reducer import Reducer  # noqa: E402

WORLD = 3
EQUAL, SLOW = (100e6, 100e6, 100e6), (25e6, 100e6, 100e6)
RING_S, TREES_S = 0.3, 0.2


class Group(MeetingGroup):
    def own_address(self) -> str:
        return "127.0.0.1"


def reducing(monkeypatch: pytest.MonkeyPatch, rates: Any, work: Any) -> list[Any]:
    """`work` at each rank, with its reducer; the ring and trees take the seconds above."""
    clock = threading.local()

    def passing(seconds: float, method: Any) -> Any:
        def called(*arguments: Any) -> Any:
            clock.now_s = getattr(clock, "now_s", 0.0) + seconds
            return method(*arguments)

        return called

    now = SimpleNamespace(monotonic=lambda: getattr(clock, "now_s", 0.0))
    monkeypatch.setattr(session_module, "time", now)
    links = Links.star(np.array(rates))
    monkeypatch.setattr(session_module, "measure", lambda mesh, gather: links)
    monkeypatch.setattr(Adaptive, "_ring", passing(RING_S, Adaptive._ring))
    session = session_module.AdaptiveSession
    monkeypatch.setattr(session, "_along_trees", passing(TREES_S, session._along_trees))

    def be(rank: int, gather: Any) -> Any:
        group: Any = Group(rank, WORLD, gather)
        reducer = Reducer(Adaptive, Setting(group, 5.0))
        try:
            return work(rank, reducer)
        finally:
            reducer.close()

    return Ranks(WORLD).run(be)


def test_on_equal_links_there_is_nothing_to_try(monkeypatch: pytest.MonkeyPatch) -> None:
    found = reducing(monkeypatch, EQUAL, lambda rank, reducer: reducer.why_not)
    assert found == ["no trees are faster on the links as measured"] * WORLD


@pytest.mark.parametrize(("trees_s", "is_kept"), [(TREES_S, True), (0.29, False), (2.0, False)])
def test_around_a_slow_link_trees_have_to_win_a_trial(
    trees_s: float, is_kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They took less time than the ring when they were planned, whatever they take for buckets."""

    def work(rank: int, reducer: Reducer) -> Any:
        assert not reducer.why_not
        auto, ways = Auto(reducer, ""), []
        for _ in range(SETTLE + ROUNDS * len(BLOCKS) + 2):
            auto.begin()
            ways.append(auto.ours)
            gradient = torch.full((5,), float(rank))
            if auto.takes(gradient):
                reducer.all_reduce(gradient, How.AVERAGE).wait()
                assert gradient.tolist() == [1.0] * 5
            auto._ended = auto._begun + (trees_s if auto.ours else RING_S)
        return ways, auto.why

    ranks = reducing(monkeypatch, SLOW, work)
    assert [ways for ways, _ in ranks] == [ranks[0][0]] * WORLD
    ways, why = ranks[0]
    assert True in ways
    assert ways[-1] == is_kept
    assert "by `adaptive`, for" in why


@pytest.mark.parametrize("fails_in", ["trial", "use"])
def test_failed_trees_are_left_for_the_jobs_own_way(
    fails_in: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gloo as it replaces them isn't what a trial is about, nor faster than the job's own way."""
    begun = SETTLE + ROUNDS if fails_in == "trial" else SETTLE + ROUNDS * len(BLOCKS) + 1

    def work(rank: int, reducer: Reducer) -> Any:
        auto, ways = Auto(reducer, ""), []
        for number in range(begun + WATCHED + 2):
            auto.begin()
            ways.append(auto.ours)
            if auto.takes(gradient := torch.full((5,), float(rank))):
                if number == begun and rank == 1:
                    reducer._way.close()
                reducer.all_reduce(gradient, How.AVERAGE).wait()
                assert gradient.tolist() == [1.0] * 5
            auto._ended = auto._begun + (TREES_S if auto.ours else RING_S)
        return ways, auto.why

    ranks = reducing(monkeypatch, SLOW, work)
    ways, why = ranks[0]
    assert [each for each, _ in ranks] == [ways] * WORLD
    assert ways[begun]
    assert not ways[-1]
    assert why.startswith("they keep the job's own way: ")


@pytest.mark.parametrize(
    ("candidates", "tried", "sentence"),
    [
        ([Aggregated.name] * 3, Aggregated, ""),
        ([Aggregated.name, Adaptive.name, Aggregated.name], Gloo, "is named on rank 1, so"),
        ([Adaptive.name] * 3, Adaptive, ""),
        ([Adaptive.name, Adaptive.name, ""], Gloo, "no aggregator is named"),
        ([Adaptive.name] * 2, Gloo, "with two ranks no other way sends less"),
        ([Adaptive.name] * (ddp.TREES_MOST_RANKS + 1), Gloo, "no aggregator is named"),
    ],
)
def test_ranks_try_only_what_all_of_them_can(candidates: Any, tried: Any, sentence: str) -> None:
    chosen, why = ddp._chosen(candidates)
    assert chosen is tried
    assert sentence in why
    assert bool(why) == bool(sentence)


@pytest.mark.parametrize(
    ("model", "candidate"),
    [
        (torch.nn.Linear(400, 400), Adaptive.name),
        (torch.nn.Linear(300, 300), ""),  # too small to be worth the probing
        (torch.nn.Linear(400, 400).half(), ""),
        (torch.nn.Linear(400, 400).requires_grad_(False), ""),
        (torch.nn.Linear(400, 400, device="meta"), ""),
    ],
)
def test_trees_are_for_large_gradients_in_the_hosts_memory(model: Any, candidate: str) -> None:
    assert ddp._candidate(model, None) == candidate
