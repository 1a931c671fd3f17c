# SPDX-License-Identifier: BSD-2-Clause
"""Plans for clusters as text for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from mltcp_tools.base.cells import WIDTH, clip, number, table
from mltcp_tools.base.units import format_rate, format_seconds
from mltcp_tools.lab.planning.cluster import PlacementPlan

_MOST_ROWS = 20


def render_cluster(plans: Sequence[PlacementPlan]) -> str:
    """The ranking, then shifts and links of the best placement."""
    rows: list[list[str] | None] = [
        [
            clip(plan.name, 30),
            "discarded" if plan.loop else f"{plan.score:.4f}",
            number(None if plan.loop else plan.worst, ".4f"),
            number(None if plan.loop else plan.bound, ".4f"),
            number(None if plan.loop else float(len(plan.links)), ".0f"),
        ]
        for plan in plans
    ]
    parts = [table(("placement", "score", "worst link", "at most", "shared links"), rows)]
    parts += [
        textwrap.fill(
            f"{plan.name} has a loop, for which shifts may contradict each other:"
            f" {_around(plan.loop)}. Solve it with --loops joint.",
            WIDTH,
        )
        for plan in plans
        if plan.loop
    ]
    best = plans[0]
    if not best.loop:
        parts += [f"Shifts of {best.name}", _shifts_table(best)]
        if best.links:
            parts.append(_links_table(best))
    return "\n\n".join(parts) + "\n"


def _around(loop: Sequence[str]) -> str:
    if len(loop) <= 9:
        return " - ".join(loop)
    return " - ".join([*loop[:6], f"… {len(loop) - 9} more …", *loop[-3:]])


def _shifts_table(plan: PlacementPlan) -> str:
    rows: list[list[str] | None] = [
        [clip(job, 30), format_seconds(shift_s), format_seconds(plan.periods[job])]
        for job, shift_s in list(plan.shifts.items())[:_MOST_ROWS]
    ]
    return table(("job", "shift", "turn"), rows) + _rest(len(plan.shifts), "jobs")


def _links_table(plan: PlacementPlan) -> str:
    """The links, worst first."""
    worst = sorted(plan.links.items(), key=lambda item: item[1].score)
    rows: list[list[str] | None] = [
        [
            clip(name, 30),
            format_rate(link.capacity_bps),
            f"{link.score:.3f}",
            f"{link.unshifted:.3f}",
            clip(", ".join(profile.name for profile in link.profiles), 40),
        ]
        for name, link in worst[:_MOST_ROWS]
    ]
    return table(("link", "rate", "score", "unshifted", "jobs"), rows) + _rest(len(worst), "links")


def _rest(count: int, what: str) -> str:
    if count <= _MOST_ROWS:
        return ""
    return f"\n… and {count - _MOST_ROWS} more {what}; --json has all."
