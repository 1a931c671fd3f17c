"""Whether an evaluation can be right at all: nothing is faster than what bounds it.

The schedule alone bounds every job: no congestion control carries bytes faster than the link. The
schedule bound also bounds the mean of equal jobs; with unequal ones an arm that prefers the short
ones can undercut first come, first served. An arm beyond that shows a mistake in the bound, the
bottleneck or the clock, never a good congestion control.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mltcp_tools.runs.run import Run

TOLERANCE = 0.01
"""The share by which an arm may be faster: time stamps, and the bottleneck's bucket of 20 KiB."""


def failures(run: Run, arms: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """One sentence per arm (entries of a result) that is faster than possible."""
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
