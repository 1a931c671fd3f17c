# SPDX-License-Identifier: BSD-2-Clause
"""The parts of reports as text: numbers, tables and lists, at most WIDTH columns wide."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mltcp_tools.base.columns import Column, render
from mltcp_tools.base.columns import clip as cut

WIDTH = 100
NONE = "-"
_NAME_WIDTH = 15


def bullets(sentences: Sequence[str]) -> list[str]:
    """Sentences as an indented list, wrapped."""
    return [
        textwrap.fill(each, WIDTH, initial_indent="  - ", subsequent_indent="    ")
        for each in sentences
    ]


def table(head: Sequence[str], rows: Sequence[Sequence[str] | None]) -> str:
    """Columns aligned: the first to the left, others to the right; None is a rule.

    Where that is wider than WIDTH, first the gaps get narrower and then the names.
    """
    columns = [Column(title, left=not place) for place, title in enumerate(head)]
    return render(columns, rows, WIDTH, rule=True)


def markdown(lines: Sequence[Sequence[str]]) -> str:
    """A table in Markdown; lines: the head first, then its rows."""
    head, *rows = lines
    ruled = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in ruled)


def clip(name: str, width: int = _NAME_WIDTH) -> str:
    """A name that fits."""
    return cut(name, width)


def number(value: float | None, form: str) -> str:
    """A number in a format, or a dash."""
    return NONE if value is None else format(value, "z" + form)


def plain_text(value: object) -> str:
    """A value of any document, its numbers with as many digits as people read: 6 at most, and no
    fewer than are before the point."""
    return str(_rounded(value))


def _rounded(value: object) -> object:
    match value:
        case float() if abs(value) < 1e6:
            return float(f"{value:.6g}")
        case float() if math.isfinite(value):
            return round(value)
        case Mapping():
            return {key: _rounded(each) for key, each in value.items()}
        case list():
            return [_rounded(each) for each in value]
    return value


def interval(estimate: Mapping[str, float | None] | None, form: str = ".2f") -> str:
    """`0.76 [0.70, 0.81]`, without the interval where there is none."""
    if not estimate or estimate["value"] is None:
        return NONE
    value = number(estimate["value"], form)
    if estimate["low"] is None or estimate["high"] is None:
        return value
    return f"{value} [{number(estimate['low'], form)}, {number(estimate['high'], form)}]"


def time_unit(result: Mapping[str, Any]) -> tuple[str, Callable[[float | None], str]]:
    """The unit that suits a result's iteration times, and a function that writes seconds in it."""
    entries = [*result["variants"].values(), *result["schedules"].values()]
    longest = max((e["iteration_s"]["p99"] for e in entries if e["iteration_s"]), default=0.0)
    if longest >= 10:
        return "s", lambda seconds: NONE if seconds is None else f"{seconds:.2f}"
    return "ms", lambda seconds: NONE if seconds is None else f"{seconds * 1e3:.1f}"
