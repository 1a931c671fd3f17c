# SPDX-License-Identifier: BSD-2-Clause
"""A trial's report: one page of HTML that needs nothing else, with a drawing of its rounds."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from mltcp_tools.base.columns import Cell
from mltcp_tools.base.units import format_seconds
from mltcp_tools.live.trial.conduct import Conducted
from mltcp_tools.live.trial.period import BASE, MLTCP
from mltcp_tools.live.trial.text import COLUMNS, in_short, rows
from mltcp_tools.live.trial.trial import announcement

_WIDTH, _HEIGHT, _MARGIN = 760, 200, 64
_STYLE = """
:root { color-scheme: light dark; --ink: #222; --quiet: #666; --line: #ddd; --paper: #fff;
        --base: #b4552d; --mltcp: #2b6cb0; }
@media (prefers-color-scheme: dark) { :root { --ink: #eee; --quiet: #aaa; --line: #444;
        --paper: #181818; --base: #f0a36b; --mltcp: #7db8f0; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
       max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .5rem; text-align: right; border-bottom: 1px solid var(--line);
         white-space: nowrap; }
th.left, td.left { text-align: left; }
.short { font-size: 1.15rem; border-left: 4px solid var(--mltcp); padding: .2rem 1rem; }
.quiet, caption, figcaption { color: var(--quiet); }
figure { margin: 1rem 0; }
svg { width: 100%; height: auto; }
svg text { fill: var(--ink); font: 12px system-ui, sans-serif; }
.base { stroke: var(--base); fill: var(--base); }
.mltcp { stroke: var(--mltcp); fill: var(--mltcp); }
.pair { stroke: var(--quiet); }
.axis { stroke: var(--line); }
.discarded { fill: none; stroke-dasharray: 2 2; }
"""


def page(found: Conducted) -> str:
    """The whole page."""
    jobs = ", ".join(found.course.periods_s)
    return "\n".join(
        (
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>Trial of {escape(found.mltcp)} on {escape(jobs)}</title>",
            f"<style>{_STYLE}</style></head><body>",
            f"<h1>Trial of {escape(found.mltcp)} on {escape(jobs)}</h1>",
            f'<p class="short">{escape(in_short(found))}</p>',
            _table(found),
            *(_figure(found, job) for job in found.course.periods_s),
            _rounds(found),
            f'<h2>How it was done</h2><p class="quiet">{escape(_method(found))}</p>',
            "</body></html>\n",
        )
    )


def _table(found: Conducted) -> str:
    head = _row([each.title for each in COLUMNS], "th")
    body = "".join(_row(each, "td") for each in rows(found))
    return f'<div class="scroll"><table><thead>{head}</thead><tbody>{body}</tbody></table></div>'


def _row(cells: Sequence[str | Cell], tag: str) -> str:
    found = []
    for cell, column in zip(cells, COLUMNS, strict=True):
        text = cell.text if isinstance(cell, Cell) else cell
        side = ' class="left"' if column.left else ""
        found.append(f"<{tag}{side}>{escape(text)}</{tag}>")
    return f"<tr>{''.join(found)}</tr>"


def _figure(found: Conducted, job: str) -> str:
    """The mean iteration of each period, both of a round above each other; discarded rounds are
    hollow."""
    points = [
        (each.number, variant, each.periods[variant].jobs[job].mean_s, bool(each.discarded))
        for each in found.course.rounds
        for variant in (BASE, MLTCP)
        if variant in each.periods and each.periods[variant].jobs[job].iterations
    ]
    if not points:
        return ""
    times = [time for _, _, time, _ in points]
    low, high = min(times), max(times)
    pad = max((high - low) * 0.1, high * 0.005)
    low, high = low - pad, high + pad
    step = (_WIDTH - 2 * _MARGIN) / max(1, len(found.course.rounds))

    def x(number: int) -> float:
        return _MARGIN + (number - 0.5) * step

    def y(time: float) -> float:
        return _HEIGHT - 24 - (time - low) / (high - low) * (_HEIGHT - 24)

    lines = []
    for time in (low + pad, (low + high) / 2, high - pad):
        lines.append(
            f'<line class="axis" x1="{_MARGIN}" x2="{_WIDTH - _MARGIN}" y1="{y(time):.1f}"'
            f' y2="{y(time):.1f}"/><text x="{_MARGIN - 6}" y="{y(time) + 4:.1f}"'
            f' text-anchor="end">{escape(format_seconds(float(f"{time:.3g}")))}</text>'
        )
    for number in {number for number, *_ in points}:
        own = [y(time) for each, _, time, _ in points if each == number]
        lines.append(
            f'<line class="pair" x1="{x(number):.1f}" x2="{x(number):.1f}" y1="{min(own):.1f}"'
            f' y2="{max(own):.1f}"/><text x="{x(number):.1f}" y="{_HEIGHT - 6}"'
            f' text-anchor="middle">{number}</text>'
        )
    for number, variant, time, is_discarded in points:
        shape = "discarded" if is_discarded else ""
        lines.append(
            _mark(
                variant,
                x(number),
                y(time),
                f"{variant} {shape}".strip(),
                f"{variant}, round {number}: {format_seconds(time)}",
            )
        )
    drawing = "".join(lines)
    return (
        f"<figure><h2>{escape(job)}</h2>"
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="Iteration time of'
        f' {escape(job)} in each round">{drawing}</svg>'
        f"<figcaption>Mean iteration in each round: circles {escape(found.base)}, squares"
        f" {escape(found.mltcp)}; hollow ones are discarded.</figcaption></figure>"
    )


def _mark(variant: str, x: float, y: float, kind: str, title: str) -> str:
    """A circle for the base and a square for mltcp, so that colours needn't be told apart."""
    named = f"<title>{escape(title)}</title>"
    if variant == BASE:
        return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="5">{named}</circle>'
    return (
        f'<rect class="{kind}" x="{x - 5:.1f}" y="{y - 5:.1f}" width="10" height="10">{named}'
        "</rect>"
    )


def _rounds(found: Conducted) -> str:
    discarded = [each for each in found.course.rounds if each.discarded]
    if not discarded:
        return ""
    listed = "".join(
        f"<li>{each.number}: {escape(' '.join(each.discarded))}</li>" for each in discarded
    )
    return f"<h2>Discarded rounds</h2><ul>{listed}</ul>"


def _method(found: Conducted) -> str:
    plan = found.course.plan
    return (
        f"{announcement(found.course)} Which variant began each round was drawn (seed"
        f" {found.course.seed}), half of the rounds each way; the first quarter of a period was"
        f" left"
        " out. The p-value is that of the drawing itself: how many of the orders that might have"
        " been drawn show a difference at least as large. The interval holds every difference that"
        f" this test doesn't refuse. A job slower by {plan.slower:.0%} would have ended the trial."
    )
