# SPDX-License-Identifier: BSD-2-Clause
"""The trial: rounds of two periods each in a random balanced order, until they suffice or must
stop.

A round is discarded where the jobs or what is around them changed in it; another one takes its
place. A job that becomes too slow with mltcp, or stalls, gets its own congestion control back at
once. That is held against mltcp only where the job is faster right after, without it: a neighbour
that began slows it down under both.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from mltcp_tools.base.errors import MltcpError, UsageError
from mltcp_tools.base.units import counted, format_seconds
from mltcp_tools.live.observe.iteration_detector import Iteration
from mltcp_tools.live.trial.evidence import (
    interval,
    of_iterations,
    share,
    spread_of_periods,
    visible,
)
from mltcp_tools.live.trial.order import Order, draw
from mltcp_tools.live.trial.period import BASE, MLTCP, Ended, Period, Slower, Stalled, changes
from mltcp_tools.live.trial.surroundings import Interrupted, JobEnded, World

LEAST_ROUNDS = 8
"""With fewer, chance makes any difference in more than a twentieth of the orders."""

SETTLE = 0.25
"""Share of a period that is left out of it: mltcp learns anew after each switch, and bursts
slide."""

LEAST_ITERATIONS = 40
"""Of a period, which is made longer for them; some of them are left out."""

_SETTLE_ITERATIONS = 10
_STRIKES = 2
"""Times that a job is too slow or stalls with mltcp, more often than without, that end the trial.

One may be a checkpoint, or a neighbour that left when mltcp did.
"""


@dataclass(frozen=True)
class Plan:
    """rounds: valid ones wanted. every_s: length of a period, unless LEAST_ITERATIONS take longer.

    slower: share that is tolerated.
    """

    rounds: int
    every_s: float
    slower: float

    def __post_init__(self) -> None:
        if self.rounds < LEAST_ROUNDS or self.rounds % 2:
            raise UsageError(
                f"{self.rounds} rounds can't give a significant result: give an even number,"
                f" {LEAST_ROUNDS} or more."
            )

    @property
    def most_rounds(self) -> int:
        """With those that take the place of discarded ones."""
        return self.rounds + self.rounds // 2


@dataclass
class Round:
    """One round: its periods by variant, and why it is discarded, if it is."""

    number: int
    variants: tuple[str, str]
    periods: dict[str, Period] = field(default_factory=dict)
    discarded: list[str] = field(default_factory=list)


@dataclass
class Course:
    """The course of a trial. ended: why it stopped early; empty where it didn't. stopped: by a
    guard.

    period_s: length of a period, as it is now. visible: the smallest difference (a share) that so
    many rounds find in four of five trials, as far as the iterations before it tell.
    """

    plan: Plan
    seed: int
    order: Order
    periods_s: dict[str, float]
    period_s: float
    visible: float
    rounds: list[Round] = field(default_factory=list)
    ended: str = ""
    stopped: bool = False

    @property
    def valid(self) -> list[Round]:
        """The rounds that count."""
        return [each for each in self.rounds if not each.discarded and len(each.periods) == 2]


class Guarded(Exception):
    """A guard ends the trial. str(): why, sentences."""


Say = Callable[[str], None]


class Trial:
    """Runs a plan in a world. `say` gets a sentence for each thing that happens."""

    def __init__(self, plan: Plan, world: World, seed: int, say: Say) -> None:
        self._plan = plan
        self._world = world
        self._say = say
        self._source = random.Random(seed)
        self._strikes = 0
        world.switch(BASE)
        seen = world.learn()
        self._periods_s = periods_of(seen)
        period_s, order = self._period_s(), draw(plan.rounds, self._source)
        visible = self._visible(seen, period_s)
        self.course = Course(plan, seed, order, dict(self._periods_s), period_s, visible)
        self._base_s = dict(self._periods_s)
        """By job, how long its iterations took when it last ran the base."""

    def run(self) -> Course:
        """Go through the rounds; how it went. The jobs are left in the last period's variant."""
        course = self.course
        try:
            while len(course.valid) < self._plan.rounds:
                number = len(course.rounds)
                if number == self._plan.most_rounds:
                    course.ended = "Too many rounds were discarded."
                    break
                if number == len(course.order.first):
                    course.order = course.order.more(self._source)
                self._round(number)
        except Guarded as stop:
            course.ended, course.stopped = str(stop), True
        except (JobEnded, Interrupted, MltcpError) as end:
            course.ended = str(end)
        return course

    def _round(self, number: int) -> None:
        first = (MLTCP, BASE) if self.course.order.first[number] else (BASE, MLTCP)
        each = Round(number + 1, first)
        self.course.rounds.append(each)
        try:
            for variant in each.variants:
                each.periods[variant] = self._period(variant)
        except Ended as end:
            each.discarded.append(str(end))
        except (Guarded, JobEnded, Interrupted) as end:
            each.discarded.append(str(end))
            raise
        else:
            each.discarded = what_changed(
                [each.periods[variant] for variant in each.variants], self._world
            )
        if each.discarded:
            self._say(f"Round {each.number} is discarded: {' '.join(each.discarded)}")
            self._world.switch(BASE)
            self._look_again()
        else:
            base, mltcp = each.periods[BASE], each.periods[MLTCP]
            told = ", ".join(
                f"{job} {format_seconds(base.jobs[job].mean_s)} without,"
                f" {format_seconds(mltcp.jobs[job].mean_s)} with"
                for job in base.jobs
            )
            self._say(f"Round {each.number}: {told}.")

    def _period(self, variant: str) -> Period:
        """One period to its end. Raises Ended and Guarded, with the base put back before."""
        limits_s = {job: (1 + self._plan.slower) * time for job, time in self._base_s.items()}
        try:
            period = take_period(
                self._world,
                variant,
                self.course.period_s,
                self._periods_s,
                limits_s if variant == MLTCP else {},
            )
        except Ended as end:
            self._world.switch(BASE)
            counts, why = self._right_after(end) if isinstance(end, Slower) else (True, str(end))
            if counts:
                self._strikes += 1 if variant == MLTCP else -1
            if self._strikes == _STRIKES:
                raise Guarded(f"{why} That was the second time with mltcp.") from None
            raise Ended(why) from None
        if variant == BASE:
            self._base_s |= {
                job: measured.mean_s for job, measured in period.jobs.items() if measured.recorded
            }
        return period

    def _right_after(self, end: Slower) -> tuple[bool, str]:
        """Compare with the base right after: whether it is mltcp that is slower, and a sentence."""
        length_s = min(self.course.period_s, LEAST_ITERATIONS * max(self._periods_s.values()))
        try:
            period = take_period(self._world, BASE, length_s, self._periods_s, {})
        except Stalled as stall:
            return False, f"{end} {stall}"
        without_s = period.jobs[end.job].times_s
        if len(without_s) < len(end.times_s):
            return False, f"{end} Right after it made too few iterations without mltcp to compare."
        longer = of_iterations(end.times_s, without_s)
        why = (
            f"{end.job} took {format_seconds(fmean(end.times_s))} an iteration with mltcp, and"
            f" {format_seconds(fmean(without_s))} right after without: {interval(longer)}."
        )
        if longer.proven and share(longer.mean) >= self._plan.slower:
            return True, why
        return False, f"{why} So something else slowed it down."

    def _look_again(self) -> None:
        """Look again at the jobs, whose iterations and neighbours may have changed."""
        self._periods_s = periods_of(self._world.learn())
        self._base_s = dict(self._periods_s)
        self.course.period_s = self._period_s()

    def _period_s(self) -> float:
        """Return the length of periods that iterations as they are now need."""
        return max(self._plan.every_s, LEAST_ITERATIONS * max(self._periods_s.values()))

    def _visible(self, seen: Mapping[str, Sequence[Iteration]], period_s: float) -> float:
        """Of all jobs together, whose noises add up as far as they are each other's own."""
        spreads = []
        for job, iterations in seen.items():
            times_s = [each.duration_s for each in iterations for _ in range(each.count)]
            per_period = round((1 - SETTLE) * period_s / self._periods_s[job])
            spreads.append(spread_of_periods(times_s, per_period))
        # Jobs on one link disturb each other, so that none of this evens out for sure.
        return visible(fmean(spreads), self._plan.rounds)


def take_period(
    world: World,
    variant: str,
    every_s: float,
    periods_s: Mapping[str, float],
    limits_s: Mapping[str, float],
) -> Period:
    """One period to its end. Raises period.Ended where a job is slower than its limit, or
    stalls."""
    world.switch(variant)
    number = world.begin_period()
    begin_s = world.now_s()
    settle_s = max(SETTLE * every_s, _SETTLE_ITERATIONS * max(periods_s.values()))
    period = Period(variant, number, begin_s, settle_s, periods_s, limits_s)
    while world.now_s() < begin_s + every_s:
        for job, iteration in world.wait():
            period.add(job, iteration)
        period.check(world.now_s())
    counted = world.end_period(number)
    period.notes += counted.notes
    for job, retransmits in counted.retransmits.items():
        period.jobs[job].retransmits = retransmits
    return period


def what_changed(periods: Sequence[Period], world: World) -> list[str]:
    """Return sentences on why two periods can't be compared, if so; each once."""
    notes = [note for period in periods for note in period.notes]
    notes += changes(periods) + world.unlike(*(period.number for period in periods))
    return list(dict.fromkeys(notes))


def periods_of(seen: Mapping[str, Sequence[Iteration]]) -> dict[str, float]:
    return {
        job: fmean(each.duration_s for each in iterations for _ in range(each.count))
        for job, iterations in seen.items()
    }


def announcement(course: Course) -> str:
    """Return sentences on the trial that is to come, and what it can show."""
    plan = course.plan
    length = f"{2 * plan.rounds * course.period_s / 60:.0f} minutes"
    return (
        f"{counted(plan.rounds, 'round')} of two periods of {format_seconds(course.period_s)},"
        f" together"
        f" {length}; discarded ones are repeated. By the iterations seen so far, this finds a"
        f" difference"
        f" of {max(course.visible, 0.001):.1%} in four of five trials."
    )
