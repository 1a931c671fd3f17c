# SPDX-License-Identifier: BSD-2-Clause
"""A result as one HTML file that needs nothing else: plots are embedded, there is no script."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from mltcp_tools.base import cells
from mltcp_tools.base.pages import embedded, templates
from mltcp_tools.lab.analysis import metrics, plots, text

_TEMPLATES = templates(__package__)
_CAPTIONS = {
    "iterations": "Line: median over jobs and repetitions. Band: 10th to 90th percentile. "
    "Dashed and dotted: mean of the bound and of each job alone.",
    "timeline": "Each bar is one burst; bars above each other compete for the link. "
    "First repetition.",
    "cdf": "Further left is faster. Bound and fair are computed, not measured.",
    "windows": "One line per burst and flow, first repetition, about one iteration early and late. "
    "The ratio is the share of the burst's bytes "
    "that were acknowledged.",
}


def render_html(result: Mapping[str, Any], images: Mapping[str, bytes]) -> str:
    """The report of a result (`mltcp-result/1`); `images` are the plots, PNG by name."""
    unit, seconds = cells.time_unit(result)
    figures = [
        {
            "title": plots.title(name),
            "caption": _CAPTIONS[name],
            "png": embedded(image),
        }
        for name, image in images.items()
    ]
    return _TEMPLATES.get_template("report.html.j2").render(
        result=result,
        name=result["experiment"].get("name") or result["run"],
        description=result["experiment"].get("description"),
        simulated=text.SIMULATED if result["environment"].get("simulated") else "",
        entries=_entries(result),
        unit=unit,
        seconds=seconds,
        number=cells.number,
        interval=cells.interval,
        figures=figures,
        details="\n\n".join(text.details(result)),
        experiment=yaml.safe_dump(result["experiment"], sort_keys=False, allow_unicode=True),
        environment=list(_flat(result["environment"])),
        undisturbed=metrics.UNDISTURBED,
        window=metrics.WINDOW,
        window_share=metrics.WINDOW_SHARE,
        holding_share=metrics.HOLDING_SHARE,
        min_remaining=metrics.MIN_REMAINING,
    )


def _entries(result: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any], bool]]:
    """(name, entry, whether it is a schedule) of variants and schedules that have iterations."""
    variants = [(name, entry, False) for name, entry in result["variants"].items()]
    computed = result["schedules"]
    schedules = [(name, computed[name], True) for name in text.SCHEDULES if name in computed]
    return [each for each in (*variants, *schedules) if each[1]["iteration_s"]]


def _flat(value: object, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested documents as (dotted name, value) pairs."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _flat(each, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(value, list):
        yield prefix, ", ".join(cells.plain_text(each) for each in value)
    else:
        yield prefix, cells.plain_text(value)
