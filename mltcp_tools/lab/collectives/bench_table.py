# SPDX-License-Identifier: BSD-2-Clause
"""Documents of `mltcp collectives bench` as tables, for a terminal and for Markdown."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mltcp_tools.base.cells import markdown
from mltcp_tools.base.columns import Column, render
from mltcp_tools.base.errors import UsageError
from mltcp_tools.base.units import format_bytes, format_rate, format_seconds
from mltcp_tools.lab.collectives.provenance import sentence

SCHEMA = "mltcp-collectives-bench/5"

_Cell = Callable[[dict[str, Any], dict[str, Any]], str]


def _form(value: float | None, form: Callable[[float], str]) -> str:
    return "" if value is None else form(value)


def _links(document: dict[str, Any]) -> str:
    """The rates of the links: `200 Mbit/s`, with the first one where it differs."""
    first, rate = document["rates"][0], document["rates"][-1]
    slow = "" if first == rate else f", one {format_rate(first)}"
    return format_rate(rate) + slow


def _ratio(value: float | None) -> str:
    return _form(value, lambda ratio: f"{ratio:.2f}")


def _spread(row: dict[str, Any]) -> str:
    if row["speedup"] is None:
        return ""
    low, high = row["speedup_range"]
    return f"{row['speedup']:.2f} ({low:.2f} to {high:.2f})"


_LINKS = {
    "ranks": lambda document, row: str(row["ranks"]),
    "links": lambda document, row: _links(document),
    "blocks": lambda document, row: f"{document['block']} values",
}
_WHAT: dict[str, _Cell] = {
    "type": lambda document, row: document["type"] if document["type"] != "float32" else "",
    "density": lambda document, row: f"{row['density']:.0%}",
    "size": lambda document, row: format_bytes(row["bytes"]),
    "algorithm": lambda document, row: row["algorithm"],
    "time": lambda document, row: format_seconds(row["seconds"]),
    "bound": lambda document, row: _form(row["bound_s"], format_seconds),
    "per core": lambda document, row: format_rate(8 * row["bytes"] / row["cpu_s"]),
}
_RATES: dict[str, _Cell] = {
    "rate": lambda document, row: format_rate(row["algorithm_rate"]),
    "bus": lambda document, row: format_rate(row["bus_rate"]),
}
_GAINS: dict[str, _Cell] = {
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
    cells = {**_WHAT, **_RATES, **_GAINS, "right": _right}
    head, *rows = _lines([document], cells)
    table = render([Column(title, left=title == "algorithm") for title in head], rows)
    return "\n".join([table, *_aggregator(document)])


def read(path: Path) -> dict[str, Any]:
    """A document that `bench --namespaces --json` printed."""
    try:
        document: dict[str, Any] = json.loads(path.read_text())
        if document["schema"] == SCHEMA and "rates" in document:
            return document
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UsageError(
            f"{path} is no document of `mltcp collectives bench --json` ({error})."
        ) from None
    raise UsageError(f"{path} is no document of `mltcp collectives bench --namespaces --json`.")


def for_results(documents: dict[str, dict[str, Any]]) -> str:
    """Documents by their names, as a page in Markdown: each a section with what made it."""
    parts = [
        "# Results of collectives",
        "Times are medians of the slowest rank's; `bound` is the least time that an algorithm of"
        " its kind can take on these links. `per core`: the tensor's bits by the seconds of a"
        " rank's CPU, to which this host counts links and aggregator, too. `speed-up`: gloo's"
        " time by the algorithm's, the median over the repetitions (lowest to highest); `in all`:"
        " all of gloo's time by all of its; `at most`: gloo's bound by its own. `scripts/results"
        " collectives` makes this page, with ranks of real-time priority (`chrt -r 1`); no table in"
        " it is typed.",
    ]
    for name, document in documents.items():
        by = document["made"]
        parts += [f"## {name}", sentence(by)]
        parts.append(markdown(_lines([document], {**_LINKS, **_WHAT, **_GAINS})))
        parts += _aggregator(document)
    return "\n\n".join(parts) + "\n"


def _aggregator(document: dict[str, Any]) -> list[str]:
    """A sentence on what its programs cost, where there was one that was used."""
    counted = document.get("aggregator") or {"bytes": 0}
    if not counted["bytes"] or not counted["busy_s"]:
        return []
    ns = counted["busy_s"] * 1e9 / counted["bytes"]
    return [
        f"The aggregator's programs ran {ns:.2f} ns for a byte that they added up, what passed"
        f" through them included; that is {format_rate(8e9 / ns)} for a core."
    ]


def _lines(documents: Sequence[dict[str, Any]], cells: dict[str, _Cell]) -> list[list[str]]:
    """The head and the rows, without columns that are empty or say `100%` or `no` everywhere."""
    rows = [(document, row) for document in documents for row in document["rows"]]
    lines = [[cell(*each) for cell in cells.values()] for each in rows]
    dense = all(row["density"] == 1 for _, row in rows)
    kept = [
        place
        for place, title in enumerate(cells)
        if any(line[place] for line in lines) and not (dense and title in ("density", "blocks"))
    ]
    return [[line[place] for place in kept] for line in ([*cells], *lines)]
