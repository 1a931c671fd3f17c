"""What reports as text are made of: numbers, tables and lists, at most WIDTH columns wide."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

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

    Where that is wider than a terminal, first the gaps get narrower and then the names.
    """
    lines = [list(row) for row in (head, *rows) if row is not None]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    gap = 2 if sum(widths) + 2 * (len(widths) - 1) <= WIDTH else 1
    excess = sum(widths) + gap * (len(widths) - 1) - WIDTH
    widths[0] = max(4, widths[0] - max(0, excess))
    rule = "─" * (sum(widths) + gap * (len(widths) - 1))

    def line(row: Sequence[str]) -> str:
        cells = [clip(row[0], widths[0]).ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        return (" " * gap).join(cells).rstrip()

    return "\n".join([line(head), rule, *(rule if row is None else line(row) for row in rows)])


def clip(name: str, width: int = _NAME_WIDTH) -> str:
    """A name that fits."""
    return name if len(name) <= width else name[: width - 1] + "…"


def number(value: float | None, form: str) -> str:
    """A number in a format, or a dash."""
    return NONE if value is None else format(value, "z" + form)


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
    entries = [*result["arms"].values(), *result["schedules"].values()]
    longest = max((e["iteration_s"]["p99"] for e in entries if e["iteration_s"]), default=0.0)
    if longest >= 10:
        return "s", lambda seconds: NONE if seconds is None else f"{seconds:.2f}"
    return "ms", lambda seconds: NONE if seconds is None else f"{seconds * 1e3:.1f}"
