"""Whether an evaluation can be right at all: nothing is faster than what bounds it.

The schedule alone bounds every job: no congestion control carries bytes faster than the link. The
schedule bound also bounds the mean of equal jobs; with unequal ones an arm that prefers the short
ones can undercut first come, first served. An arm beyond that shows a mistake in the bound, the
bottleneck or the clock, never a good congestion control.

And the link must be what limits the jobs, not the host: where a lone job doesn't fill FILLS of the
link although a processor is as good as busy while it sends, arms say more of the host than of
congestion control.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mltcp_tools.analysis.lone import Lone, measured_once
from mltcp_tools.runs.described import ALONE
from mltcp_tools.runs.run import Run

TOLERANCE = 0.01
"""The share by which an arm may be faster: time stamps, and the bottleneck's bucket of 20 KiB."""


FILLS = 0.8
"""Share of the link that a lone job's best iterations must fill."""
BUSY = 0.7
"""Processors in use while it sends, from which on these are what limits it: the work of one flow is
hardly ever spread over several."""


def failures(
    run: Run, arms: Mapping[str, Mapping[str, Any]], lone: Mapping[str, Lone]
) -> list[str]:
    """One sentence per arm (entries of a result) that is faster than possible, and per lone job
    that the host kept from filling the link."""
    return [*_too_fast(run, arms), *_host_limits(run, lone)]


def _host_limits(run: Run, lone: Mapping[str, Lone]) -> list[str]:
    rows = run.arms[run.arms["arm"] == ALONE]
    busy, cpus = rows["cpu_busy"].mean(), run.environment.get("cpus")
    alone = run.iterations[run.iterations["arm"] == ALONE]
    if run.environment.get("simulated") or not isinstance(cpus, int) or not busy > 0:
        return []
    if alone.empty:
        return []
    sending = alone["comm_s"].sum() / (alone["end_s"] - alone["start_s"]).sum()
    processors = min(float(cpus), busy * cpus / sending) if sending > 0 else 0.0
    return [
        f"The host, not the link, limits the jobs: {job} alone filled"
        f" {each.alone_s / each.best_s:.0%} of the link at best, where {FILLS:.0%} is the least,"
        f" with {processors:.1f} of {cpus} processors busy while it sent; see that the link's"
        " `offloads` are on and its queue holds 136 KiB, lower its rate, or use a guest in virtual"
        " time."
        for job, each in measured_once(lone)
        if each.best_s and each.alone_s < FILLS * each.best_s and processors >= BUSY
    ]


def _too_fast(run: Run, arms: Mapping[str, Mapping[str, Any]]) -> list[str]:
    named = run.experiment.jobs
    known = {named[job].key for job in run.job_names if job in named}
    equal = len(known) == 1 and all(job in named for job in run.job_names)
    sentences = []
    for arm, entry in arms.items():
        for schedule, ratio in (
            ("each job alone", entry["ratio_to_alone"]),
            ("the bound", entry["ratio_to_bound"] if equal else None),
        ):
            if ratio is not None and ratio < 1 - TOLERANCE:
                sentences.append(
                    f"The evaluation failed: arm {arm} took {ratio:.3f} times as long as "
                    f"{schedule}, and nothing can be faster than that; check what the link "
                    "carries, and that all clocks are one."
                )
                break
    return sentences
