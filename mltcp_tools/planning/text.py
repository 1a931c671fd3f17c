"""Profiles and plans as text for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from mltcp_tools.analysis.cells import WIDTH, clip, table
from mltcp_tools.planning.link import LinkPlan
from mltcp_tools.profiling.profile import Profile
from mltcp_tools.units import format_bytes, format_rate, format_seconds


def profiles_json(profiles: Sequence[Profile]) -> dict[str, Any]:
    """Profiles as a document (`mltcp-profiles/1`); times in seconds, rates in bit/s."""
    return {
        "schema": "mltcp-profiles/1",
        "jobs": {
            profile.name: {
                "period_s": profile.period_s,
                "bytes": profile.bytes,
                "communication_s": profile.communication_s,
                "phases": [asdict(phase) for phase in profile.phases],
            }
            for profile in profiles
        },
    }


def render_profiles(profiles: Sequence[Profile]) -> str:
    """A line per job and one per phase."""
    rows: list[list[str] | None] = []
    for profile in profiles:
        rows.append(
            [
                clip(profile.name, 30),
                format_seconds(profile.period_s),
                format_bytes(profile.bytes),
                format_rate(profile.mean_bps),
                f"{profile.communication_s / profile.period_s:.1%}",
            ]
        )
        rows += [
            [
                f"  phase {number}, from {format_seconds(phase.start_s)} on",
                format_seconds(phase.duration_s),
                format_bytes(phase.bytes),
                format_rate(phase.rate_bps),
                f"{phase.duration_s / profile.period_s:.1%}",
            ]
            for number, phase in enumerate(profile.phases, 1)
        ]
    head = ("job", "iteration", "bytes", "rate", "share")
    return table(head, rows) + "\n"


def render_link(plan: LinkPlan) -> str:
    """Score, what is known of the optimum, and when each job starts."""
    load = sum(profile.mean_bps for profile in plan.profiles) / plan.capacity_bps
    parts = [
        f"score {plan.score:.3f} on {format_rate(plan.capacity_bps)}, {_certificate(plan)}",
        f"All starting together would score {plan.unshifted:.3f}. Together the jobs need"
        f" {load:.0%} of the link.",
    ]
    rows = [
        [
            clip(profile.name, 30),
            format_seconds(profile.period_s),
            format_bytes(profile.bytes),
            format_seconds(profile.communication_s),
            format_seconds(plan.shifts[profile.name]),
            format_seconds(plan.periods[profile.name]),
            f"{plan.circle.stretch[profile.name]:.2%}",
            f"{plan.circle.repeats[profile.name]}",
        ]
        for profile in plan.profiles
    ]
    head = ("job", "iteration", "bytes", "communicates", "shift", "turn", "waits", "repeats")
    parts.append(table(head, rows))
    parts.append(
        f"Circle of {format_seconds(plan.circle.perimeter_s)} in {plan.circle.steps} steps of"
        f" {format_seconds(plan.circle.step_s)}. shift: how long after the common start the job's"
        " iterations begin. turn: from one start to the next. waits: the share by which that is"
        " more than the iteration takes, so that all turns have a common multiple: what rounding"
        " costs. repeats: turns on the circle."
    )
    wrapped = [textwrap.fill(part, WIDTH) if "\n" not in part else part for part in parts]
    return "\n\n".join(wrapped) + "\n"


def _certificate(plan: LinkPlan) -> str:
    if plan.optimum.proven:
        return "and no shifts score higher."
    gap = plan.optimum.bound - plan.score
    return (
        f"and no shifts score higher than {plan.optimum.bound:.3f} (gap {gap:.3f}; give the solver"
        " more --time-limit to narrow it)."
    )
