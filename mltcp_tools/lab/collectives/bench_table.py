# SPDX-License-Identifier: BSD-2-Clause
"""Documents of `mltcp collectives bench` as tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mltcp_tools.base.columns import Column, render
from mltcp_tools.base.units import format_bytes, format_rate, format_seconds

SCHEMA = "mltcp-collectives-bench/5"

Cell = Callable[[dict[str, Any], dict[str, Any]], str]


def _form(value: float | None, form: Callable[[float], str]) -> str:
    return "" if value is None else form(value)


def _ratio(value: float | None) -> str:
    return _form(value, lambda ratio: f"{ratio:.2f}")


def _spread(row: dict[str, Any]) -> str:
    if row["speedup"] is None:
        return ""
    low, high = row["speedup_range"]
    return f"{row['speedup']:.2f} ({low:.2f} to {high:.2f})"


WHAT: dict[str, Cell] = {
    "type": lambda document, row: document["type"] if document["type"] != "float32" else "",
    "density": lambda document, row: f"{row['density']:.0%}",
    "size": lambda document, row: format_bytes(row["bytes"]),
    "algorithm": lambda document, row: row["algorithm"],
    "time": lambda document, row: format_seconds(row["seconds"]),
    "bound": lambda document, row: _form(row["bound_s"], format_seconds),
    "per core": lambda document, row: format_rate(8 * row["bytes"] / row["cpu_s"]),
}
_RATES: dict[str, Cell] = {
    "rate": lambda document, row: format_rate(row["algorithm_rate"]),
    "bus": lambda document, row: format_rate(row["bus_rate"]),
}
GAINS: dict[str, Cell] = {
    "speed-up": lambda document, row: _spread(row),
    "in all": lambda document, row: _ratio(row["speedup_total"]),
    "at most": lambda document, row: _ratio(row["most_speedup"]),
}


def _right(document: dict[str, Any], row: dict[str, Any]) -> str:
    if not row["correct"]:
        return "WRONG"
    return "yes" if row["identical"] else "NOT ALIKE"


def for_terminal(document: dict[str, Any]) -> str:
    """The rows of one document; columns without anything are left out."""
    cells = {**WHAT, **_RATES, **GAINS, "right": _right}
    head, *rows = lines(document, cells)
    table = render([Column(title, left=title == "algorithm") for title in head], rows)
    return "\n".join([table, *aggregator_sentence(document)])


def aggregator_sentence(document: dict[str, Any]) -> list[str]:
    """A sentence on the CPU time of the aggregator's programs, if an aggregator was used."""
    counted = document.get("aggregator") or {"bytes": 0}
    if not counted["bytes"] or not counted["busy_s"]:
        return []
    ns = counted["busy_s"] * 1e9 / counted["bytes"]
    return [
        f"The aggregator's programs took {ns:.2f} ns of CPU time for each byte that they summed"
        f" (forwarding included): {format_rate(8e9 / ns)} per core."
    ]


def lines(document: dict[str, Any], cells: dict[str, Cell]) -> list[list[str]]:
    """The head and the rows, without columns that are empty or say `100%` everywhere."""
    found = [[cell(document, row) for cell in cells.values()] for row in document["rows"]]
    dense = all(row["density"] == 1 for row in document["rows"])
    kept = [
        place
        for place, title in enumerate(cells)
        if any(line[place] for line in found) and not (dense and title in ("density", "blocks"))
    ]
    return [[line[place] for place in kept] for line in ([*cells], *found)]
