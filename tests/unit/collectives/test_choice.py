# SPDX-License-Identifier: BSD-2-Clause
"""The choice between ring and trees, over links whose rates are made up and in time that is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest

from mltcp_tools.collectives.adaptive.choice import SLOW_LOOKS, Choice

SIZE = 1_000_000
STEP_S = 0.002
LOOK_S = 0.25
PLAN_S = 1.0
COMPUTE_S = 0.15


@dataclass
class Training:
    """Reductions after computations, with `choice` or, without one, by the ring.

    needs: seconds that a reduction takes on links of its own, along trees or not, at a time. share:
    of the links, that others leave at a time. promising: whether a plan made at a time has trees to
    try. by_trees: how reductions went.
    """

    needs: Callable[[bool, float], float]
    share: Callable[[float], float] = lambda now: 1.0
    promising: Callable[[float], bool] = lambda now: True
    choice: Choice | None = None
    plans: int = 0
    by_trees: list[bool] = field(default_factory=list)

    def run(self, reductions: int, seed: int = 1) -> float:
        """Seconds that the reductions and plans took."""
        draws = np.random.default_rng(seed)
        now, spent, taken = 0.0, 0.0, []
        for _ in range(reductions):
            now += COMPUTE_S * (1 + 0.05 * draws.standard_normal())
            by_trees = bool(self.choice and self.choice.by_trees)
            took = self._reduce(by_trees, now)
            now, spent = now + took, spent + took
            self.by_trees.append(by_trees)
            taken.append(took)
            if self.choice and sum(taken) >= LOOK_S:
                pace, least = sum(taken) / len(taken) / SIZE, min(taken) / SIZE
                taken = []
                if self.choice.look(pace, least, now):
                    now, spent, self.plans = now + PLAN_S, spent + PLAN_S, self.plans + 1
                    self.choice.planned(now, PLAN_S, self.promising(now), tried=False)
        return spent

    def _reduce(self, by_trees: bool, begin: float) -> float:
        done, now = 0.0, begin
        while done < 1:
            done += STEP_S * self.share(now) / self.needs(by_trees, now)
            now += STEP_S
        return now - begin


def bursts(seed: int) -> Callable[[float], float]:
    """Return what another job leaves: half, for as long as its bursts last."""
    draws = np.random.default_rng(seed)
    ends = np.cumsum(draws.normal([0.15, 0.13], [0.01, 0.03], (20_000, 2)).clip(0.02).ravel())

    def share(now: float) -> float:
        return 0.5 if np.searchsorted(ends, now) % 2 else 1.0

    return share


def planned(trees: bool) -> Choice:
    choice = Choice(has_ring=True)
    choice.planned(0.0, PLAN_S, trees, tried=True)
    return choice


@pytest.mark.parametrize("trees", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_beside_another_job_it_is_no_slower_than_the_ring(seed: int, trees: bool) -> None:
    """Its bursts look like slow links, and plans made meanwhile promise what isn't so."""

    def needs(by_trees: bool, now: float) -> float:
        return 0.107 * (1.3 if by_trees else 1.0)

    ring = Training(needs, bursts(seed)).run(1000, seed)
    own = Training(needs, bursts(seed), choice=planned(trees))
    assert own.run(1000, seed) < 1.03 * ring


def test_links_that_stay_slower_are_planned_for() -> None:
    def needs(by_trees: bool, now: float) -> float:
        if now < 20:
            return 0.1
        return 0.27 if by_trees else 0.4

    training = Training(needs, choice=planned(trees=False))
    training.run(1000)
    assert training.plans == 1
    assert training.by_trees[-1]
    assert training.by_trees.count(True) > 600


def dips(now: float) -> bool:
    """The link is at a quarter for 20 s of a minute."""
    return now % 60 > 40


def test_trees_are_kept_while_worth_it_else_ring() -> None:
    def needs(by_trees: bool, now: float) -> float:
        if by_trees:
            return 0.27 if dips(now) else 0.115
        return 0.4 if dips(now) else 0.1

    ring = Training(needs).run(3000)
    training = Training(needs, choice=planned(trees=False))
    assert training.run(3000) < 0.93 * ring  # 0.90 for whoever knows
    assert training.plans == 1
    assert training.by_trees.count(True) < 0.3 * len(training.by_trees)


def test_plans_that_come_to_nothing_get_rarer() -> None:
    """Another job's flow that doesn't end halves all links; plans can't help."""

    def share(now: float) -> float:
        return 1.0 if now < 10 else 0.5

    training = Training(lambda by_trees, now: 0.1, share, lambda now: False, planned(trees=False))
    training.run(1000)
    assert training.plans == 1  # what was slow is what there is, since
    assert not any(training.by_trees)


def test_trees_are_replanned_without_ring_when_links_change() -> None:
    choice = Choice(has_ring=False)
    choice.planned(0.0, 0.001, True, tried=True)
    paces = [1.0] * 3 + [2.0] * SLOW_LOOKS
    assert [choice.look(pace, pace, 1.0 + n) for n, pace in enumerate(paces)][-2:] == [False, True]
    choice.planned(20.0, 0.001, True, tried=True)
    paces = [2.0] + [1.0] * SLOW_LOOKS
    assert [choice.look(pace, pace, 21.0 + n) for n, pace in enumerate(paces)][-2:] == [False, True]
    assert choice.by_trees
