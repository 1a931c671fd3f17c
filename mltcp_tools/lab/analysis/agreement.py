"""A matrix in virtual time held against the same matrix on a kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mltcp_tools.cells import markdown

TOLERANCE = 0.05
"""Share of a kernel's mean iteration by which a simulated one may be off."""


def agreement_table(kernel: Mapping[str, Any], simulated: Mapping[str, Any]) -> str:
    """A row for each mix that both documents (`mltcp-matrix/1`) have, a column for each arm: mean
    iteration on the kernel and simulated, milliseconds, and by how much the latter is longer.
    "" where they have no arm in common.
    """
    rows = _common(kernel, simulated)
    arms = dict.fromkeys(arm for means in rows.values() for arm in means)
    if not arms:
        return ""
    lines = [["", *arms]]
    for mix, means in rows.items():
        cells = [_cell(*means[arm]) if arm in means else "" for arm in arms]
        lines.append([f"`{mix}`", *cells])
    return markdown(lines)


def agree(kernel: Mapping[str, Any], simulated: Mapping[str, Any]) -> str:
    """A sentence: in how many mixes every arm agrees to TOLERANCE."""
    rows = _common(kernel, simulated)
    close = [
        mix
        for mix, means in rows.items()
        if all(abs(second / first - 1) <= TOLERANCE for first, second in means.values())
    ]
    return f"Every arm agrees within {TOLERANCE:.0%} in {len(close)} of {len(rows)} mixes."


def _common(
    kernel: Mapping[str, Any], simulated: Mapping[str, Any]
) -> dict[str, dict[str, tuple[float, float]]]:
    """Per mix and arm: the mean iteration on the kernel and simulated, seconds."""
    rows = {}
    for mix, entry in kernel["mixes"].items():
        others = simulated["mixes"].get(mix, {"arms": {}})["arms"]
        means = {
            arm: (each["mean_s"], others[arm]["mean_s"])
            for arm, each in entry["arms"].items()
            if arm in others and each["mean_s"] and others[arm]["mean_s"]
        }
        if means:
            rows[mix] = means
    return rows


def _cell(kernel_s: float, simulated_s: float) -> str:
    return f"{kernel_s * 1e3:.0f} / {simulated_s * 1e3:.0f} ({simulated_s / kernel_s - 1:+.1%})"
