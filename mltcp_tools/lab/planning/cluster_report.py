# SPDX-License-Identifier: BSD-2-Clause
"""Plans for clusters as text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from mltcp_tools.base.cells import clip, table
from mltcp_tools.base.units import format_rate, format_seconds
from mltcp_tools.lab.planning.cluster import PlacementPlan

_MOST_ROWS = 20


def render_cluster(plans: Sequence[PlacementPlan]) -> str:
    """The ranking, then shifts and links of the best placement."""
    rows: list[list[str] | None] = [
        [
            clip(plan.name, 30),
            f"{plan.score:.4f}",
            f"{plan.worst:.4f}",
            f"{plan.bound:.4f}",
            f"{len(plan.links)}",
        ]
        for plan in plans
    ]
    parts = [table(("placement", "score", "worst link", "at most", "shared links"), rows)]
    best = plans[0]
    parts += [f"Shifts of {best.name}", _shifts_table(best)]
    if best.links:
        parts.append(_links_table(best))
    return "\n\n".join(parts) + "\n"


def _shifts_table(plan: PlacementPlan) -> str:
    rows: list[list[str] | None] = [
        [clip(job, 30), format_seconds(shift_s), format_seconds(plan.periods[job])]
        for job, shift_s in list(plan.shifts.items())[:_MOST_ROWS]
    ]
    return table(("job", "shift", "period"), rows) + _rest(len(plan.shifts), "jobs")


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
