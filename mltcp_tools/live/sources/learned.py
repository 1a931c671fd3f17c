# SPDX-License-Identifier: BSD-2-Clause
"""Iterations as a job's flows have learned them in the kernel: Flows in, Metadata out.

The flows act on it by themselves (kmod/mltcp_learn.h); this is for display.
"""

from __future__ import annotations

from collections.abc import Iterable

from mltcp_tools.kernel.backends.base import Flow
from mltcp_tools.live.sources.metadata import Metadata


def learned_metadata(
    flows: Iterable[Flow], period_s: float | None, iterations: int
) -> Metadata | None:
    """Return the iterations as the flow that sends most has learned them; None while no flow is
    sure, or without a period.

    period_s, iterations: how long the job's iterations take, and how many were seen.
    """
    sure = [each for each in flows if each.confidence > 0]
    if not sure or not period_s:
        return None
    busiest = max(sure, key=lambda flow: flow.learned_bytes)
    return Metadata(
        source="learned",
        period_s=period_s,
        bytes_per_iteration=busiest.learned_bytes,
        gap_s=busiest.learned_gap_s / 2,  # one half as long as usual still counts
        confidence=busiest.confidence,
        iterations_seen=iterations,
    )
