# SPDX-License-Identifier: BSD-2-Clause
"""Strategies against the bound that none beats, trees against another solver, and transfers."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.aggregation.threads import Ranks

from mltcp_tools.collectives.adaptive import session as session_module
from mltcp_tools.collectives.adaptive.links import Links, ring_s
from mltcp_tools.collectives.adaptive.mesh import Mesh
from mltcp_tools.collectives.adaptive.session import (
    LOOKED,
    WATCHED_BYTES,
    AdaptiveSession,
)
from mltcp_tools.collectives.adaptive.strategy import find_strategy
from mltcp_tools.collectives.adaptive.trees import cheapest_spread
from mltcp_tools.collectives.bounds import hosts_bound_s
from mltcp_tools.collectives.session import SessionError

SIZE = 10_000_000


def random_links(hosts: int, seed: int, star: bool) -> Links:
    rng = np.random.default_rng(seed)
    if star:
        return Links.star(rng.uniform(25e6, 100e6, hosts))
    rates = rng.uniform(20e6, 100e6, (hosts, hosts))
    up, down = rng.uniform(100e6, 400e6, (2, hosts))
    return Links(rates, up, down, np.full((hosts, hosts), 1e-4))


@settings(max_examples=40)
@given(st.integers(2, 8), st.integers(0, 2**32))
def test_the_cheapest_tree_is_that_of_another_solver(hosts: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    costs = rng.uniform(0, 1, (hosts, hosts)) * (rng.random((hosts, hosts)) < 0.7)
    root = int(rng.integers(hosts))
    parents = cheapest_spread(costs, root)
    own = sum(costs[parents[host], host] for host in range(hosts) if host != root)
    graph = nx.DiGraph()
    for i, j in itertools.permutations(range(hosts), 2):
        if j != root:
            graph.add_edge(i, j, weight=costs[i, j])
    other = nx.minimum_spanning_arborescence(graph)
    assert own == pytest.approx(sum(costs[i, j] for i, j in other.edges))
    for host in range(hosts):  # it is a tree: everybody's way up ends at the root
        for _ in range(hosts):
            host = parents[host]
        assert host == root


def bound_s(links: Links) -> float:
    """Seconds that no all-reduce of SIZE among hosts beats, without help from the network.

    What a host gets depends on all of what each other one has, so SIZE crosses every cut between
    them. And all hosts together send 2(n-1) times SIZE at least (Patarasuk and Yuan, JPDC 2009),
    over links that carry so much at once at most.
    """
    hosts = links.hosts
    cuts = []
    for size in range(1, hosts):
        for inside in itertools.combinations(range(hosts), size):
            outside = [host for host in range(hosts) if host not in inside]
            # Each link of a host may be cut instead of its pairs: the cheaper of all ways.
            ways = [
                sum(links.up[i] for i in cut_up)
                + sum(links.down[j] for j in cut_down)
                + sum(
                    links.rates[i, j]
                    for i in inside
                    if i not in cut_up
                    for j in outside
                    if j not in cut_down
                )
                for up in range(len(inside) + 1)
                for cut_up in itertools.combinations(inside, up)
                for down in range(len(outside) + 1)
                for cut_down in itertools.combinations(outside, down)
            ]
            cuts.append(min(ways))
    # What hosts A can get from all of them, and the rest by their own links: the least of all A.
    most = min(
        sum(min(links.up[i], sum(links.rates[i, j] for j in some if j != i)) for i in range(hosts))
        + sum(links.down[j] for j in range(hosts) if j not in some)
        for size in range(hosts + 1)
        for some in itertools.combinations(range(hosts), size)
    )
    together = 2 * (hosts - 1) / most
    return SIZE * 8 * max(1 / min(cuts), together)


@settings(max_examples=15)
@given(st.integers(2, 5), st.integers(0, 2**32), st.booleans())
def test_within_a_tenth_of_the_bound(hosts: int, seed: int, star: bool) -> None:
    links = random_links(hosts, seed, star)
    strategy, least_s = find_strategy(links, SIZE), bound_s(links)
    assert sum(strategy.shares) == pytest.approx(1)
    assert least_s * (1 - 1e-6) <= strategy.seconds <= 1.1 * least_s
    if star:
        assert hosts_bound_s(links.up.tolist(), SIZE) == pytest.approx(least_s)


def test_equal_links_match_a_ring_and_a_slow_one_is_spared() -> None:
    equal = Links.star(np.full(4, 100e6))
    assert find_strategy(equal, SIZE).seconds == pytest.approx(1.5 * SIZE * 8 / 100e6)
    assert ring_s(equal, SIZE) == pytest.approx(1.5 * SIZE * 8 / 100e6)
    for hosts, gain in ((4, 1.5), (8, 1.75)):
        rates = np.full(hosts, 100e6)
        rates[2] /= 4
        in_a_ring_s = 2 * (hosts - 1) / hosts * SIZE * 8 / rates[2]
        assert in_a_ring_s / find_strategy(Links.star(rates), SIZE).seconds == pytest.approx(gain)


def test_probes_that_differ_by_their_error_count_as_equal() -> None:
    rates = np.array([[0, 95e6, 99e6], [103e6, 0, 24e6], [100e6, 25e6, 0]])
    links = Links.measured(rates, np.full((3, 3), 1e-4))
    assert len(set(links.rates[~np.eye(3, dtype=bool)])) == 2


def test_of_two_measurements_the_faster_one_of_each_pair_counts() -> None:
    """Another job's bursts were at other pairs each time."""
    once, again = np.full((3, 3), 100e6), np.full((3, 3), 98e6)
    once[0, 1] = again[2, 0] = 50e6
    latencies = np.array([[0, 1, 9], [1, 0, 1], [1, 1, 0]]) * 1e-4
    links = Links.measured(once, latencies).at_best(Links.measured(again, latencies.T))
    assert len(set(links.rates[~np.eye(3, dtype=bool)])) == 1
    assert links.latencies.max() == pytest.approx(1e-4)


@pytest.fixture
def pass_s(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Looks of few reductions, which take the seconds that a rank's thread lets pass."""
    clocks = threading.local()

    def now_s() -> float:
        return getattr(clocks, "now_s", 0.0)

    def pass_by(seconds: float) -> None:
        clocks.now_s = now_s() + seconds

    monkeypatch.setattr(session_module, "LOOKED", 2)
    monkeypatch.setattr(session_module, "time", SimpleNamespace(monotonic=now_s))
    return pass_by


@pytest.mark.parametrize("slow_is", ["ring", "trees"])
def test_plan_changes_with_the_links(
    slow_is: str, pass_s: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link becomes slow, which trees spare; or is as fast as the others again."""
    changed = threading.Event()

    def ring_is_slow() -> bool:
        return (slow_is == "ring") == changed.is_set()

    def measured(mesh: Any, gather: Any) -> Links:
        return Links.star(np.array([25e6 if ring_is_slow() else 100e6, 100e6, 100e6]))

    monkeypatch.setattr(session_module, "measure", measured)

    class Timed(AdaptiveSession):
        def _along_trees(self, array: Any) -> None:
            super()._along_trees(array)
            pass_s(0.1 if ring_is_slow() else 0.3)

    def work(rank: int, gather: Any) -> Any:
        def ring(array: Any) -> None:
            array[:] = np.sum(gather(array.copy()), axis=0)
            pass_s(0.3 if ring_is_slow() else 0.1)

        with contextlib.closing(
            Timed(Mesh(rank, 3, "127.0.0.1", gather, 20.0), gather, ring=ring)
        ) as session:
            before = session.by_trees
            for number in range(30):
                if number == 4:
                    gather(None)
                    changed.set()
                array = np.ones(WATCHED_BYTES // 4, dtype=np.float32)
                session.reduce(array)
                session.look()
                assert (array == 3).all()
            return before, session.by_trees, session.plans

    by_trees = slow_is == "trees"
    assert Ranks(3).run(work) == [(by_trees, not by_trees, 2)] * 3


def test_where_ranks_could_not_agree_the_next_reduction_says_so() -> None:
    def work(rank: int, session: AdaptiveSession) -> Any:
        array = np.ones(WATCHED_BYTES // 4, dtype=np.float32)
        for _ in range(LOOKED):
            session.reduce(array)

        def gone(what: Any) -> Any:
            raise RuntimeError("a rank is gone")

        session.gather = gone
        session.look()
        with pytest.raises(SessionError, match="a rank is gone"):
            session.reduce(array)
        return True

    assert run(2, work) == [True] * 2


def test_plans_that_change_nothing_get_rarer(
    pass_s: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another job's bursts slow down half of the reductions; no plan helps."""
    equal = Links.star(np.full(3, 100e6))
    monkeypatch.setattr(session_module, "measure", lambda mesh, gather: equal)

    def work(rank: int, gather: Any) -> list[int]:
        numbers, plans = itertools.count(), []

        def ring(array: Any) -> None:
            gather(None)
            pass_s(0.04 if next(numbers) // 4 % 2 else 0.01)

        mesh = Mesh(rank, 3, "127.0.0.1", gather, 20.0)
        with contextlib.closing(AdaptiveSession(mesh, gather, ring=ring)) as session:
            for _ in range(120):
                session.reduce(np.ones(WATCHED_BYTES // 4, dtype=np.float32))
                session.look()
                plans.append(session.plans)
        return [plans.index(count) for count in sorted(set(plans))]

    first, *rest = Ranks(3).run(work)
    assert rest == [first] * 2
    pauses = np.diff(first)
    assert len(pauses) >= 2
    assert all(later >= 1.5 * earlier for earlier, later in itertools.pairwise(pauses))


def run(world: int, work: Callable[[int, AdaptiveSession], Any]) -> list[Any]:
    def make(rank: int, gather: Any) -> AdaptiveSession:
        return AdaptiveSession(Mesh(rank, world, "127.0.0.1", gather, 20.0), gather)

    return Ranks(world).run_with(make, work)


def test_sums_along_trees_are_right_and_the_same_everywhere() -> None:
    arrays = [np.random.default_rng(rank).standard_normal(300_001) for rank in range(4)]

    def work(rank: int, session: AdaptiveSession) -> Any:
        sums = []
        for size in (1, 1000, 300_001):
            array = arrays[rank][:size].astype(np.float32)
            session.reduce(array)
            sums.append(array)
        return sums

    results = run(4, work)
    assert not [each for each in results if isinstance(each, Exception)], results
    for turn, size in enumerate((1, 1000, 300_001)):
        exact = np.sum([array[:size].astype(np.float32) for array in arrays], axis=0)
        assert np.allclose(results[0][turn], exact, atol=1e-5)
        assert len({each[turn].tobytes() for each in results}) == 1


def test_a_rank_that_leaves_fails_the_others_at_once() -> None:
    def work(rank: int, session: AdaptiveSession) -> Any:
        if rank == 1:
            return None
        with pytest.raises(SessionError, match="transfer along a tree failed"):
            session.reduce(np.ones(5_000_000, dtype=np.float32))
        return True

    assert run(3, work) == [True, None, True]
