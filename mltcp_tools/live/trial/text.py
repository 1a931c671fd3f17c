# SPDX-License-Identifier: BSD-2-Clause
"""The findings of a trial, as text and as a document."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from mltcp_tools import __version__
from mltcp_tools.base.columns import Cell, Column, Meaning, Row
from mltcp_tools.base.units import format_seconds
from mltcp_tools.live.trial.conduct import Conducted
from mltcp_tools.live.trial.evidence import Difference, interval, share
from mltcp_tools.live.trial.period import BASE, MLTCP
from mltcp_tools.live.trial.trial import Round

SCHEMA = "mltcp-trial/1"
COLUMNS = (
    Column("JOB", left=True),
    Column("RUNS", left=True),
    Column("ITERATIONS", drop=2),
    Column("MEAN"),
    Column("P50", drop=3),
    Column("P99", drop=1),
    Column("RETRANSMITS", drop=4),
    Column("CHANGE [95 %]"),
    Column("P"),
)


def rows(found: Conducted) -> list[Row]:
    """Two for each job, of the columns COLUMNS."""
    table: list[Row] = []
    for each in found.verdict.jobs:
        for name, variant in ((found.base, each.base), (found.mltcp, each.mltcp)):
            ours = variant is each.mltcp
            table.append(
                (
                    "" if ours else each.job,
                    name,
                    str(variant.iterations),
                    *(
                        format_seconds(time)
                        for time in (variant.mean_s, variant.p50_s, variant.p99_s)
                    ),
                    str(variant.retransmits),
                    Cell(interval(each.longer), _meaning(each.longer)) if ours else "",
                    f"{each.longer.p:.3f}" if ours and each.longer.bounded else "",
                )
            )
    return table


def _meaning(longer: Difference) -> Meaning:
    if not longer.proven:
        return "quiet"
    return "bad" if longer.mean > 0 else "good"


def in_short(found: Conducted) -> str:
    """The verdict and what to do, and how sure that is; a paragraph."""
    course = found.course
    discarded = [each for each in course.rounds if each.discarded]
    note = f" {len(discarded)} of {len(course.rounds)} rounds were discarded." if discarded else ""
    return f"{found.verdict.sentence}{note} {found.verdict.advice}"


def document(found: Conducted) -> dict[str, Any]:
    """All of it, for programs; times in seconds, changes as shares, None for an interval that there
    were too few rounds for."""
    course, verdict = found.course, found.verdict
    return {
        "schema": SCHEMA,
        "version": __version__,
        "base": found.base,
        "congestion_control": found.mltcp,
        "plan": dataclasses.asdict(course.plan),
        "seed": course.seed,
        "visible": course.visible,
        "ended": course.ended,
        "verdict": verdict.kind,
        "in_short": in_short(found),
        "together": _difference(verdict.together),
        "jobs": [
            {
                "job": each.job,
                "base": dataclasses.asdict(each.base),
                "mltcp": dataclasses.asdict(each.mltcp),
                "change": _difference(each.longer),
            }
            for each in verdict.jobs
        ],
        "rounds": [_round(each) for each in course.rounds],
    }


def _difference(longer: Difference) -> dict[str, float | int | bool | None]:
    ends = {
        name: share(value) if math.isfinite(value) else None
        for name, value in (("low", longer.low), ("high", longer.high))
    }
    return {
        "mean": share(longer.mean),
        **ends,
        "p": longer.p if longer.bounded else None,
        "rounds": longer.rounds,
        "proven": longer.proven,
    }


def _round(each: Round) -> dict[str, Any]:
    return {
        "round": each.number,
        "order": each.variants,
        "discarded": each.discarded,
        "mean_s": {
            variant: {
                job: measured.mean_s for job, measured in period.jobs.items() if measured.iterations
            }
            for variant, period in each.periods.items()
            if variant in (BASE, MLTCP)
        },
    }
