# SPDX-License-Identifier: BSD-2-Clause
"""A result as one HTML file that needs nothing else: plots are embedded, there is no script."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from mltcp_tools.base import cells
from mltcp_tools.base.pages import embedded, templates
from mltcp_tools.lab.analysis import metrics, text
from mltcp_tools.lab.analysis.plots import Plot

_TEMPLATES = templates(__package__)


def render_html(result: Mapping[str, Any], plots: Sequence[Plot]) -> str:
    """The report of a result (`mltcp-result/1`) with its plots."""
    return _TEMPLATES.get_template("report.html.j2").render(
        result=result,
        name=result["experiment"].get("name") or result["run"],
        description=result["experiment"].get("description"),
        simulated=text.SIMULATED if result["environment"].get("simulated") else "",
        tables=text.tables(result) if result["variants"] else [],
        plots=plots,
        embedded=embedded,
        experiment=yaml.safe_dump(result["experiment"], sort_keys=False, allow_unicode=True),
        environment=list(_flat(result["environment"])),
        metrics=metrics,
        number=cells.number,
    )


def _flat(value: object, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested documents as (dotted name, value) pairs."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _flat(each, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(value, list):
        yield prefix, ", ".join(cells.plain_text(each) for each in value)
    else:
        yield prefix, cells.plain_text(value)
