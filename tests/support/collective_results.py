# SPDX-License-Identifier: BSD-2-Clause
"""collectives/RESULTS.md from documents of `mltcp collectives bench --namespaces --json`.

`python -m support.collective_results FILE...` prints the page.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from mltcp_tools.base.cells import markdown
from mltcp_tools.base.errors import UsageError
from mltcp_tools.base.units import format_rate
from mltcp_tools.lab.collectives.bench_table import (
    GAINS,
    SCHEMA,
    WHAT,
    aggregator_sentence,
    lines,
)


def _links(document: dict[str, Any]) -> str:
    """The rates of the links: `200 Mbit/s`, with the first one where it differs."""
    first, rate = document["rates"][0], document["rates"][-1]
    slow = "" if first == rate else f", one {format_rate(first)}"
    return format_rate(rate) + slow


LINKS = {
    "ranks": lambda document, row: str(row["ranks"]),
    "links": lambda document, row: _links(document),
    "blocks": lambda document, row: f"{document['block']} values",
}


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
        "Times are medians of the slowest rank. `bound` is the shortest time that an algorithm "
        "of its kind can take on these links. `per core`: the tensor's bits divided by a rank's "
        "CPU time, which on this host includes the links and the aggregator. `speed-up`: gloo's "
        "time divided by the algorithm's, the median over the repetitions (lowest to highest); "
        "`in all`: the sum of gloo's times divided by that of the algorithm's; `at most`: "
        "gloo's bound divided by the algorithm's. `scripts/results collectives` generates this "
        "page, with ranks of real-time priority (`chrt -r 1`).",
    ]
    for name, document in documents.items():
        by = document["made"]
        parts += [f"## {name}", sentence(by)]
        parts.append(markdown(lines(document, {**LINKS, **WHAT, **GAINS})))
        parts += aggregator_sentence(document)
    return "\n\n".join(parts) + "\n"


def sentence(made: dict[str, Any]) -> str:
    """Say how a table came about."""
    return (
        f"Measured by `{made['command']}`, {made['date']}; mltcp-tools {made['mltcp-tools']},"
        f" collectives {made['collectives']}. {made['cpus']} CPUs ({made['cpu_model']}), kernel"
        f" {made['kernel']}."
    )


if __name__ == "__main__":
    print(for_results({Path(name).stem: read(Path(name)) for name in sys.argv[1:]}), end="")
