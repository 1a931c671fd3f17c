# SPDX-License-Identifier: BSD-2-Clause
"""Tables of text: columns that align, that give way where there is no room, cells that mean things.

Every table of the tools is made here, for reports and for terminals alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

Meaning = Literal["", "good", "warning", "bad", "quiet"]
Style = Callable[[str, Meaning], str]
"""Gives a text the look of what it means."""

_LEAST = 4


@dataclass(frozen=True)
class Column:
    """A column. left: aligned so. drop: where there is no room the highest goes first; 0 stays."""

    title: str
    left: bool = False
    drop: int = 0


@dataclass(frozen=True)
class Cell:
    """A text and what it means to who looks after the jobs."""

    text: str
    meaning: Meaning = ""


Row = Sequence[str | Cell]


def plain(text: str, meaning: Meaning) -> str:
    """The style of files and of programs that read."""
    return text


def render(
    columns: Sequence[Column],
    rows: Sequence[Row | None],
    width: int | None = None,
    style: Style = plain,
    rule: bool = False,
) -> str:
    """The table as lines without an end; a row that is None is a rule, and `rule` puts one first.

    width: columns of the terminal, None without any. Where the table is wider, columns are dropped
    in their order, then gaps get narrower, and in the end the first column is cut.
    """
    cells = [
        None if row is None else [cell if isinstance(cell, Cell) else Cell(cell) for cell in row]
        for row in rows
    ]
    head = [Cell(column.title) for column in columns]
    widths = [
        max(len(line[place].text) for line in (head, *cells) if line is not None)
        for place in range(len(columns))
    ]
    kept = _kept(columns, widths, width)
    total = sum(widths[place] for place in kept)
    gap = 2 if width is None or total + 2 * (len(kept) - 1) <= width else 1
    if width is not None:
        excess = total + gap * (len(kept) - 1) - width
        widths[kept[0]] = max(_LEAST, widths[kept[0]] - max(0, excess))
    full = sum(widths[place] for place in kept) + gap * (len(kept) - 1)

    def line(row: Sequence[Cell] | None) -> str:
        if row is None:
            return "─" * full
        parts = []
        for place in kept:
            text = clip(row[place].text, widths[place])
            padding = " " * (widths[place] - len(text))
            shown = style(text, row[place].meaning) if row[place].meaning else text
            parts.append(shown + padding if columns[place].left else padding + shown)
        return (" " * gap).join(parts).rstrip()

    return "\n".join(map(line, [head, *([None] if rule else []), *cells]))


def _kept(columns: Sequence[Column], widths: Sequence[int], width: int | None) -> list[int]:
    """Places of the columns for which there is room."""
    kept = list(range(len(columns)))
    while width is not None and sum(widths[place] + 2 for place in kept) - 2 > width:
        last = max(kept, key=lambda place: (columns[place].drop, place))
        if not columns[last].drop:
            break
        kept.remove(last)
    return kept


def clip(name: str, width: int) -> str:
    """A name that fits."""
    return name if len(name) <= width else name[: width - 1] + "…"
