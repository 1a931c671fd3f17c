# SPDX-License-Identifier: BSD-2-Clause
"""Whole trials, of jobs in virtual time."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

import pytest
from support.simulated_jobs import Simulated, SimulatedWorld

from mltcp_tools.base.errors import UsageError
from mltcp_tools.live.observe.iteration_detector import Iteration
from mltcp_tools.live.trial.outcome import Verdict, judge
from mltcp_tools.live.trial.period import BASE, MLTCP
from mltcp_tools.live.trial.trial import Course, Plan, Trial, announcement

TRIALS = 200
PLAN = Plan(rounds=8, every_s=60.0, slower=0.2)


def run(world: SimulatedWorld, seed: int = 1, plan: Plan = PLAN) -> tuple[Course, Verdict]:
    course = Trial(plan, world, seed, lambda _: None).run()
    return course, judge(course)


def kinds(effect: float) -> list[str]:
    found = []
    for seed in range(TRIALS):
        jobs = {"a": Simulated(effect=effect), "b": Simulated(effect=effect, period_s=0.7)}
        found.append(run(SimulatedWorld(seed, jobs), seed)[1].kind)
    return found


def test_few_trials_without_an_effect_claim_one() -> None:
    claimed = sum(kind != "none" for kind in kinds(0.0))
    assert 0 < claimed <= 0.05 * TRIALS


def test_most_trials_with_an_effect_of_five_percent_find_it() -> None:
    assert kinds(math.log(0.95)).count("faster") >= 0.8 * TRIALS


def test_what_was_announced_as_visible_is_found_about_that_often() -> None:
    found = 0
    for seed in range(60):
        noisy = {"a": Simulated(slow=0.0, noise=0.2, drift=0.0)}
        trial = Trial(PLAN, world := SimulatedWorld(seed, noisy), seed, lambda _: None)
        world.jobs["a"].effect = -trial.course.visible
        found += judge(trial.run()).kind == "faster"
    assert 0.6 * 60 <= found <= 0.97 * 60


def test_each_job_has_its_own_row_and_advice() -> None:
    jobs = {"wins": Simulated(effect=-0.1), "loses": Simulated(effect=0.06)}
    verdict = run(SimulatedWorld(3, jobs))[1]
    assert [each.job for each in verdict.jobs] == ["wins", "loses"]
    assert [each.longer.mean < 0 for each in verdict.jobs] == [True, False]
    assert "loses" in verdict.advice
    assert verdict.jobs[0].mltcp.p99_s > verdict.jobs[0].mltcp.p50_s > 0


def test_a_job_that_mltcp_slows_twice_ends_the_trial() -> None:
    world = SimulatedWorld(1, {"a": Simulated(effect=math.log(1.5))})
    course, verdict = run(world)
    assert verdict.kind == "stopped"
    said = re.search(r"right after without: \+(\S+) % \[\+(\S+), \+(\S+)\]", course.ended)
    assert said
    middle, low, high = map(float, said.groups())
    assert 40 < low < middle < high < 60
    # Of periods of 60 s.
    begun = [at for at, variant in world.switches if variant == MLTCP]
    ended = [at for at, variant in world.switches if variant == BASE]
    assert [after - before < 15 for before, after in zip(begun, ended, strict=True)] == [True] * 2


def test_neighbour_that_leaves_once_discards_its_round() -> None:
    world = SimulatedWorld(1, {"a": Simulated(effect=-0.1)})

    def once(now_s: float, variant: str) -> float:
        return 0.5 * (
            variant == MLTCP and [variant for _, variant in world.switches].count(MLTCP) == 2
        )

    world.jobs["a"].others = once
    course, verdict = run(world)
    (discarded,) = [each for each in course.rounds if each.discarded]
    assert "right after without: +" in discarded.discarded[0]
    assert "something else" not in discarded.discarded[0]
    assert (course.ended, verdict.kind) == ("", "faster")


def test_a_stall_puts_back_and_the_second_one_ends_the_trial() -> None:
    world = SimulatedWorld(1, {"a": Simulated(stalls=lambda now, variant: variant == MLTCP)})
    course, verdict = run(world)
    assert verdict.kind == "stopped"
    assert "ended no iteration" in course.ended
    assert [variant for _, variant in world.switches] == [MLTCP, BASE, MLTCP, BASE]


def test_stalls_with_and_without_mltcp_end_no_trial() -> None:
    class Stalling(SimulatedWorld):
        def __init__(self) -> None:
            super().__init__(1, {"a": Simulated(effect=-0.1)})
            self.variants: list[str] = []

        def begin_period(self) -> int:
            period = (self.variant, self.variants.count(self.variant))
            stalling = period in ((BASE, 0), (MLTCP, 0), (MLTCP, 1))
            self.jobs["a"].stalls = lambda now, variant: stalling and variant == period[0]
            self.variants.append(self.variant)
            return super().begin_period()

        def learn(self) -> Mapping[str, Sequence[Iteration]]:
            self.jobs["a"].stalls = lambda now, variant: False
            return super().learn()

    course, verdict = run(Stalling())
    assert [bool(each.discarded) for each in course.rounds].count(True) == 3
    assert (course.ended, verdict.kind) == ("", "faster")


def test_a_pause_of_the_job_itself_discarded_its_round_only() -> None:
    paused = Simulated(effect=-0.1, stalls=lambda now, variant: 1200 < now < 1225)
    course, verdict = run(SimulatedWorld(1, {"a": paused}))
    assert verdict.kind == "faster"
    assert [bool(each.discarded) for each in course.rounds].count(True) == 1
    assert len(course.valid) == 8


def test_a_job_that_changes_discarded_its_round() -> None:
    class Changing(SimulatedWorld):
        def begin_period(self) -> int:
            if self.now_s() > 1400:
                self.jobs["a"].size = 2_000_000
            return super().begin_period()

    course = run(Changing(1, {"a": Simulated(effect=-0.05)}))[0]
    (discarded,) = [each for each in course.rounds if each.discarded]
    assert discarded.discarded == ["a changed the bytes of its iterations."]


def test_a_job_that_ends_leaves_too_little() -> None:
    course, verdict = run(SimulatedWorld(1, {"a": Simulated(effect=-0.05, ends_s=1300.0)}))
    assert (verdict.kind, course.stopped) == ("short", False)
    assert "a has ended" in verdict.sentence
    assert "[" not in verdict.sentence  # no interval, and no p that says nothing
    assert "p =" not in verdict.sentence


def test_periods_are_long_enough_for_forty_iterations() -> None:
    trial = Trial(PLAN, SimulatedWorld(1, {"a": Simulated(period_s=10.0)}), 1, lambda _: None)
    assert 400 < trial.course.period_s < 450
    assert "two periods of 4" in announcement(trial.course)


@pytest.mark.parametrize("rounds", [6, 9])
def test_rounds_that_can_not_prove_anything_are_refused(rounds: int) -> None:
    with pytest.raises(UsageError, match="even number, 8 or more"):
        Plan(rounds, 60.0, 0.2)
