# SPDX-License-Identifier: BSD-2-Clause
"""Profiles and plans as text for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from mltcp_tools.base.cells import WIDTH, clip, table
from mltcp_tools.base.units import format_bytes, format_rate, format_seconds
from mltcp_tools.lab.planning.link import LinkPlan
from mltcp_tools.lab.planning.profile import Phase, Profile


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
                "back": [asdict(phase) for phase in profile.back],
            }
            for profile in profiles
        },
    }


def render_profiles(profiles: Sequence[Profile]) -> str:
    """A line per job and direction in which it sends, and one per phase."""
    rows: list[list[str] | None] = []
    for profile in profiles:
        if profile.phases or not profile.back:
            rows += _direction(profile, clip(profile.name, 30), profile.phases)
        if profile.back:
            rows += _direction(profile, f"{clip(profile.name, 24)}, back", profile.back)
    head = ("job", "iteration", "bytes", "rate", "share")
    return table(head, rows) + "\n"


def _direction(profile: Profile, title: str, phases: Sequence[Phase]) -> list[list[str]]:
    """Return the row of a job in one direction, then each of its phases."""
    size = sum(phase.bytes for phase in phases)
    busy_s = sum(phase.duration_s for phase in phases)
    total = [
        title,
        format_seconds(profile.period_s),
        format_bytes(size),
        format_rate(size * 8 / profile.period_s),
        f"{busy_s / profile.period_s:.1%}",
    ]
    return [
        total,
        *(
            [
                f"  phase {number}, from {format_seconds(phase.start_s)} on",
                format_seconds(phase.duration_s),
                format_bytes(phase.bytes),
                format_rate(phase.rate_bps),
                f"{phase.duration_s / profile.period_s:.1%}",
            ]
            for number, phase in enumerate(phases, 1)
        ),
    ]


def render_link(plan: LinkPlan) -> str:
    """Score, what is known of the optimum, and when each job starts."""
    parts = [
        f"score {plan.score:.3f} on {format_rate(plan.capacity_bps)}, {_certificate(plan)}",
        f"All starting together would score {plan.unshifted:.3f}. {_load(plan)}",
        *plan.too_fast,
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
    head = ("job", "iteration", "bytes", "communicates", "shift", "period", "waits", "repeats")
    parts.append(table(head, rows))
    parts.append(
        f"Circle of {format_seconds(plan.circle.perimeter_s)} in {plan.circle.steps} steps of"
        f" {format_seconds(plan.circle.step_s)}. shift: how long after the common start the job's"
        " iterations begin. period: from one start to the next. waits: the share by which that is"
        " more than the iteration takes, so that all periods have a common multiple: what rounding"
        " costs. repeats: periods on the circle."
    )
    wrapped = [textwrap.fill(part, WIDTH) if "\n" not in part else part for part in parts]
    return "\n\n".join(wrapped) + "\n"


def _load(plan: LinkPlan) -> str:
    """Return the share of the link that the jobs need, and the direction."""
    loads, scores = plan.way_loads, plan.way_scores
    if len(loads) == 1:
        return f"Together the jobs need {next(iter(loads.values())):.0%} of the link."
    listed = " and ".join(
        f"{loads[way]:.0%} of the link {way} (score {score:.3f})" for way, score in scores.items()
    )
    return f"Together the jobs need {listed}."


def _certificate(plan: LinkPlan) -> str:
    if plan.optimum.proven:
        return "and no shifts score higher."
    return f"and no shifts score higher than {plan.optimum.bound:.3f}."
