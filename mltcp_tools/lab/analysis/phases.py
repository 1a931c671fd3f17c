# SPDX-License-Identifier: BSD-2-Clause
"""Phases: the spans of a variant in which the same jobs run, where jobs come late or leave early.

A phase begins with a job's first iteration and ends with a job's last one. Spans shorter than
SHORTEST median iterations don't count: equal jobs, too, end one after another. An iteration
belongs to the phase in which it begins.
"""

from __future__ import annotations

import itertools

import pandas as pd

from mltcp_tools.lab.analysis.metrics import distribution, iteration_times, with_time_of
from mltcp_tools.lab.analysis.result import PhaseResult

SHORTEST = 5


def phases_of(table: pd.DataFrame, bound: pd.DataFrame | None) -> list[PhaseResult]:
    """The phases of one variant, pooled over its repetitions, in order of their beginning.

    table: the variant's iterations. bound: the bound's, where there is one. [] where all jobs run
    all the time.
    """
    if bound is not None:
        table = with_time_of(table, bound, "bound_s")
    found: dict[tuple[str, ...], list[pd.DataFrame]] = {}
    for _, rows in table.groupby("repetition"):
        for jobs, own in _spans(rows):
            found.setdefault(jobs, []).append(own)
    if len(found) < 2:
        return []
    phases = []
    for jobs, parts in found.items():
        own = pd.concat(parts)
        known = own["bound_s"].dropna() if "bound_s" in own.columns else own["start_s"][:0]
        phases.append(
            PhaseResult(
                jobs=list(jobs),
                iteration_s=distribution(iteration_times(own)),
                bound_s=float(known.mean()) if len(known) else None,
            )
        )
    return phases


def _spans(rows: pd.DataFrame) -> list[tuple[tuple[str, ...], pd.DataFrame]]:
    """The jobs that run and the iterations that begin, for each phase of one repetition."""
    begin, end = rows.groupby("job")["start_s"].min(), rows.groupby("job")["end_s"].max()
    instants = sorted({*begin, *end})
    shortest = SHORTEST * float(iteration_times(rows).median())
    spans = []
    for left, right in itertools.pairwise(instants):
        inside = rows[(rows["start_s"] >= left) & (rows["start_s"] < right)]
        if right - left >= shortest and len(inside):
            jobs = tuple(
                str(job) for job in begin.index if begin[job] <= left and end[job] >= right
            )
            spans.append((jobs, inside))
    return spans
