"""Plots of plans, as PNG images: the circles, and a link's demand before and after."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.projections.polar import PolarAxes

from mltcp_tools.base.figures import COLOURS, INK, dress, png
from mltcp_tools.lab.planning.link import LinkPlan
from mltcp_tools.lab.profiling.profile import Floats

_EXCESS = "#d55e00"
_MOST_IN_LEGEND = 12


def draw_link(plan: LinkPlan) -> dict[str, bytes]:
    """PNG images by name: `circles`, the jobs before and after; `demand`, the link over time.

    Where both directions are in use the second one has its own, with the direction in their names.
    """
    images = {}
    for number, way in enumerate(plan.ways):
        end = f"-{way}" if number else ""
        images[f"circles{end}"] = png(_circles(plan, number))
        images[f"demand{end}"] = png(_demand(plan, number))
    return images


def rotations_of(plan: LinkPlan, way: int = 0) -> list[tuple[str, Sequence[int], float]]:
    """Return the rotations to draw side by side: a title, the rotations, their score in one of the
    directions.
    """
    together = [0] * len(plan.profiles)
    label = f", {plan.ways[way]}" if len(plan.ways) > 1 else ""
    return [
        (title + label, shifts, plan.problem.link_score(way, shifts))
        for title, shifts in (
            ("all start together", together),
            ("shifted", plan.optimum.shifts),
        )
    ]


def _demands(plan: LinkPlan, way: int, shifts: Sequence[int]) -> list[Floats]:
    """Each job's rate around the unified circle, in shares of the link's."""
    return [
        plan.problem.rotated(way, place, np.array([shifts[place]]))[0] / plan.capacity_bps
        for place in range(len(plan.profiles))
    ]


def _circles(plan: LinkPlan, way: int) -> Figure:
    """The unified circle; a ring per job, its arcs the darker the more the job sends."""
    figure = Figure(figsize=(9.2, 5.0), layout="constrained")
    steps = plan.problem.steps[way]
    angles = 2 * np.pi * np.arange(steps) / steps
    for number, (title, shifts, score) in enumerate(rotations_of(plan, way), 1):
        axes = figure.add_subplot(1, 2, number, projection="polar")
        assert isinstance(axes, PolarAxes)
        demands = _demands(plan, way, shifts)
        highest = max(float(each.max()) for each in demands)
        for place, demand in enumerate(demands):
            sends = demand > 0
            shades = [_shade(place, share / highest) for share in demand[sends]]
            axes.bar(
                angles[sends],
                np.full(int(sends.sum()), 0.86),
                width=2 * np.pi / steps,
                bottom=len(demands) - place + 0.07,
                align="edge",
                color=shades,
                edgecolor=shades,
                linewidth=0.5,
            )
        excess = np.sum(demands, axis=0) > 1 + 1e-9
        axes.bar(
            angles[excess],
            np.full(int(excess.sum()), 0.35),
            width=2 * np.pi / steps,
            bottom=len(demands) + 1.25,
            align="edge",
            color=_EXCESS,
            edgecolor=_EXCESS,
            linewidth=0.5,
        )
        axes.set_theta_zero_location("N")
        axes.set_theta_direction(-1)
        axes.set_ylim(0, len(demands) + 1.8)
        axes.set_yticks([])
        quarters = plan.circle.perimeter_s * np.arange(4) / 4
        axes.set_xticks(
            np.pi / 2 * np.arange(4), [f"{quarter * 1e3:.0f} ms" for quarter in quarters]
        )
        axes.tick_params(labelsize=8, pad=8)
        axes.set_axisbelow(True)
        axes.spines["polar"].set_color("#bbbbbb")
        axes.grid(visible=True, color="#e6e6e6", linewidth=0.6)
        axes.set_title(f"{title}: score {score:.3f}", fontsize=9)
    _legend(figure, plan)
    return figure


def _shade(place: int, share: float) -> tuple[float, float, float]:
    """A job's colour, the paler the less it sends: `share` of the highest rate."""
    red, green, blue = to_rgb(COLOURS[place % len(COLOURS)])
    pale = 0.7 * (1 - share)
    return red + pale * (1 - red), green + pale * (1 - green), blue + pale * (1 - blue)


def _demand(plan: LinkPlan, way: int) -> Figure:
    """Return a plot of the jobs' demand on the link over one turn of the circle, stacked."""
    figure = Figure(figsize=(9.2, 4.6), layout="constrained")
    rows = rotations_of(plan, way)
    grid = figure.subplots(len(rows), 1, sharex=True, sharey=True)
    steps = plan.problem.steps[way]
    edges = np.arange(steps + 1) * plan.circle.step_s * 1e3
    for axes, (title, shifts, score) in zip(grid, rows, strict=True):
        bottom = np.zeros(steps)
        for place, demand in enumerate(_demands(plan, way, shifts)):
            axes.stairs(
                bottom + demand,
                edges,
                baseline=bottom,
                fill=True,
                color=COLOURS[place % len(COLOURS)],
            )
            bottom = bottom + demand
        axes.stairs(np.maximum(bottom, 1), edges, baseline=1.0, color=_EXCESS, linewidth=1.0)
        axes.axhline(1.0, color=INK, linestyle="--", linewidth=1.0)
        axes.set_title(f"{title}: score {score:.3f}", fontsize=9, loc="left")
        dress(axes)
    grid[-1].set_xlabel("time on the circle (ms)", fontsize=9)
    grid[-1].set_xlim(0, edges[-1])
    figure.supylabel("demand / rate of the link", fontsize=9)
    _legend(figure, plan)
    return figure


def _legend(figure: Figure, plan: LinkPlan) -> None:
    names = [profile.name for profile in plan.profiles]
    if len(names) > _MOST_IN_LEGEND:
        return
    axes = figure.axes[0]
    handles = [
        axes.fill([], [], color=COLOURS[place % len(COLOURS)], label=name)[0]
        for place, name in enumerate(names)
    ]
    handles += axes.fill([], [], color=_EXCESS, label="beyond the link's rate")
    figure.legend(handles=handles, loc="outside lower center", ncols=6, fontsize=8, frameon=False)
