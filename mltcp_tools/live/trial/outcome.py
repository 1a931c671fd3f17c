# SPDX-License-Identifier: BSD-2-Clause
"""The verdict on a trial's course: the difference, how sure it is, and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean

from mltcp_tools.base.units import counted
from mltcp_tools.live.trial.evidence import Difference, difference, interval
from mltcp_tools.live.trial.period import BASE, MLTCP, Measured, log_ratio, mean, percentile
from mltcp_tools.live.trial.trial import Course


@dataclass(frozen=True)
class VariantRow:
    """A job under one variant, over all valid rounds. Times in seconds. retransmits: segments."""

    iterations: int
    mean_s: float
    p50_s: float
    p99_s: float
    retransmits: int


@dataclass(frozen=True)
class JobRow:
    """A job with and without mltcp. longer: by how much its iterations are with it."""

    job: str
    base: VariantRow
    mltcp: VariantRow
    longer: Difference


@dataclass(frozen=True)
class Verdict:
    """The proven result. kind: faster, slower, none (no difference is proven), stopped (by a
    guard), short (too few valid rounds to say anything). together: of all jobs alike.
    """

    kind: str
    together: Difference
    jobs: tuple[JobRow, ...]
    sentence: str
    advice: str


def judge(course: Course) -> Verdict:
    """The verdict on a course that has ended."""
    valid = course.valid
    indices = [each.number - 1 for each in valid]
    names = list(course.periods_s)
    ratios = [
        [log_ratio(each.periods[BASE].jobs[job], each.periods[MLTCP].jobs[job]) for each in valid]
        for job in names
    ]
    rows = tuple(
        JobRow(
            job,
            _variant(each.periods[BASE].jobs[job] for each in valid),
            _variant(each.periods[MLTCP].jobs[job] for each in valid),
            difference(values, course.order, indices),
        )
        for job, values in zip(names, ratios, strict=True)
        if values
    )
    together = difference(
        [fmean(values) for values in zip(*ratios, strict=True)], course.order, indices
    )
    kind = _kind(course, together)
    return Verdict(kind, together, rows, _sentence(kind, course, together), _advice(kind, rows))


def _variant(periods: Iterable[Measured]) -> VariantRow:
    found = list(periods)
    times_s = [time for each in found for time in each.times_s]
    return VariantRow(
        iterations=len(times_s),
        mean_s=mean(found),
        p50_s=percentile(times_s, 0.5),
        p99_s=percentile(times_s, 0.99),
        retransmits=sum(each.retransmits for each in found),
    )


def _kind(course: Course, together: Difference) -> str:
    if course.stopped:
        return "stopped"
    if together.proven:
        return "slower" if together.mean > 0 else "faster"
    return "short" if course.ended else "none"


def _sentence(kind: str, course: Course, together: Difference) -> str:
    sure = f"{interval(together)}, p = {together.p:.3f}, {counted(together.rounds, 'round')}"
    if kind == "stopped":
        return f"Stopped, and everything was put back: {course.ended}"
    if kind == "faster":
        return f"Iterations are shorter with mltcp: {sure}."
    if kind == "slower":
        return f"Iterations are longer with mltcp: {sure}."
    if kind == "short":
        return f"Too few rounds for a verdict ({together.rounds}): {course.ended}"
    return f"No difference is proven: {sure}."


def _advice(kind: str, rows: tuple[JobRow, ...]) -> str:
    losers = [each.job for each in rows if each.longer.proven and each.longer.mean > 0]
    winners = [each.job for each in rows if each.longer.proven and each.longer.mean < 0]
    names = ", ".join(losers)
    if kind == "stopped":
        return "Leave these jobs as they are; `mltcp watch` shows whether their bursts collide."
    if kind == "faster" and losers:
        return f"Use mltcp for {', '.join(winners) or 'the others'}, but not for {names}."
    if kind == "faster":
        return "Use mltcp for these jobs: `mltcp attach`, or a rule of the agent."
    if kind == "slower":
        return "Leave these jobs as they are."
    if winners and losers:
        return f"{', '.join(winners)} gained what {names} lost: choose by which matters more."
    if kind == "short":
        return "Try again while the jobs and what runs beside them stay the same."
    return "There is no reason to use mltcp for these jobs; more rounds would show less of one."
