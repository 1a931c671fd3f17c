"""Plans for clusters as text for a terminal and as plots."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import networkx as nx
from matplotlib.figure import Figure

from mltcp_tools.base.cells import WIDTH, clip, number, table
from mltcp_tools.base.figures import INK, png
from mltcp_tools.base.units import format_rate, format_seconds
from mltcp_tools.lab.planning.affinity import JOB, LINK
from mltcp_tools.lab.planning.cluster import PlacementPlan
from mltcp_tools.lab.planning.plots import draw_link

_MOST_ROWS = 20
_MOST_NODES = 60


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


def draw_cluster(plans: Sequence[PlacementPlan]) -> dict[str, bytes]:
    """PNG images of the best placement by name.

    `affinity`, its graph; `circles` and `demand` of its worst link, where it has one with shifts.
    """
    best = plans[0]
    images = {"affinity": png(_affinity(best))}
    if best.links:
        images |= draw_link(min(best.links.values(), key=lambda link: link.score))
    return images


def _affinity(plan: PlacementPlan) -> Figure:
    """Jobs on the left, links on the right; of a large graph the parts with the worst links."""
    nodes, note = _shown(plan)
    graph = plan.graph.subgraph(nodes)
    jobs = [name for kind, name in nodes if kind == JOB]
    links = [name for kind, name in nodes if kind == LINK]
    rows = max(len(jobs), len(links), 4)
    figure = Figure(figsize=(8.0, 1.0 + 0.28 * rows), layout="constrained")
    axes = figure.subplots()
    at = {(JOB, name): (0.0, -(i + 0.5) / len(jobs)) for i, name in enumerate(jobs)}
    at |= {(LINK, name): (1.0, -(i + 0.5) / len(links)) for i, name in enumerate(links)}
    around = set(zip(plan.loop, plan.loop[1:], strict=False))
    for one, other in graph.edges:
        job, link = (one, other) if one[0] == JOB else (other, one)
        looped = {(job[1], link[1]), (link[1], job[1])} & around
        axes.plot(
            *zip(at[job], at[link], strict=True),
            color="#d55e00" if looped else "#9aa5b1",
            linewidth=1.8 if looped else 0.9,
            zorder=1,
        )
    for node, (x, y) in at.items():
        axes.plot(x, y, "o" if node[0] == JOB else "s", color=_colour(plan, node), zorder=2)
        axes.annotate(
            _label(plan, node),
            (x, y),
            xytext=(-8 if node[0] == JOB else 8, 0),
            textcoords="offset points",
            ha="right" if node[0] == JOB else "left",
            va="center",
            fontsize=8,
        )
    axes.set_xlim(-0.45, 1.6)
    axes.set_axis_off()
    axes.set_title(f"{plan.name}: jobs and the links they share{note}", fontsize=9)
    return figure


def _shown(plan: PlacementPlan) -> tuple[list[tuple[str, str]], str]:
    """The nodes to draw, neighbours near each other, and what is to be said of them."""
    if len(plan.graph) <= _MOST_NODES:
        return list(plan.graph), ""
    links = [name for kind, name in plan.graph if kind == LINK]
    if plan.loop:
        first = (JOB, plan.loop[0])
    else:
        first = (LINK, min(links, key=lambda name: plan.links[name].score))
    nodes = [first, *(target for _, target in nx.bfs_edges(plan.graph, first))][:_MOST_NODES]
    return nodes, f" ({len(nodes)} of {len(plan.graph)} nodes, around {first[1]})"


def _colour(plan: PlacementPlan, node: tuple[str, str]) -> str:
    if node[0] == JOB:
        return "#3b528b"
    if plan.loop:
        return INK
    score = plan.links[node[1]].score
    return "#009e73" if score >= 1 - 1e-6 else "#d55e00"


def _label(plan: PlacementPlan, node: tuple[str, str]) -> str:
    kind, name = node
    if plan.loop:
        return clip(name, 24)
    if kind == JOB:
        return f"{clip(name, 24)}  +{format_seconds(plan.shifts[name])}"
    return f"{clip(name, 24)}  {plan.links[name].score:.3f}"
