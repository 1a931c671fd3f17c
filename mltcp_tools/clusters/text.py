# SPDX-License-Identifier: BSD-2-Clause
"""Outcomes of cluster runs as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from mltcp_tools.base.columns import Column, render
from mltcp_tools.base.units import format_seconds
from mltcp_tools.clusters.outcome import interval
from mltcp_tools.clusters.rules import UNTOLD


def long(seconds: float) -> str:
    """Seconds, minutes, hours or days."""
    if seconds >= 2 * 86_400:
        return f"{seconds / 86_400:.1f} days"
    if seconds >= 3600:
        return f"{seconds / 3600:.2f} h"
    if seconds >= 60:
        return f"{seconds / 60:.1f} min"
    return f"{seconds:.1f} s"


_Columns = Mapping[str, tuple[str, Callable[[float], str]]]
_OUTCOMES: _Columns = {
    "completion": ("completion_mean_s", long),
    "p99": ("completion_p99_s", long),
    "queueing": ("queueing_mean_s", long),
    "slow-down": ("slowdown_mean", "{:.3f}".format),
    "utilisation": ("utilisation", "{:.1%}".format),
    "restarts": ("restarts", "{:.0f}".format),
}
"""Column -> field of a summary, and how it is shown."""

_LOANS: _Columns = {
    "completion": ("completion_mean_s", long),
    "p99": ("completion_p99_s", long),
    "inference": ("inference_gpus_mean", "{:.1f} GPUs".format),
    "SLO met": ("slo_attainment", "{:.2%}".format),
    "wait p99": ("wait_p99_s", format_seconds),
    "restarts": ("restarts", "{:.0f}".format),
    "batch": ("batch_mean", "{:.2f}".format),
    "learning rate": ("learning_rate_mean", "{:.2f}".format),
}


def render_summaries(summaries: Sequence[Mapping[str, Any]]) -> str:
    """A line per policy and treatment, with means over draws. Of several draws a column says which
    share of the first line's completion times each saves, in mean over draws with its 95 %
    interval."""
    drawn: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for each in summaries:
        drawn.setdefault((each["policy"], each["treatment"]), []).append(each)
    first, *others = drawn.values()
    several = ["below the first"] if len(first) > 1 and others else []
    rows = [["policy", "treatment", "completion", *several, *list(_OUTCOMES)[1:]]]
    for key, draws in drawn.items():
        completion, *row = _means(draws, _OUTCOMES)
        rows.append([*key, completion, *(_below(draws, first) for _ in several), *row])
    return table(rows)


def _means(draws: Sequence[Mapping[str, Any]], columns: _Columns) -> list[str]:
    return [
        form(sum(float(each[field]) for each in draws) / len(draws))
        for field, form in columns.values()
    ]


def _below(draws: Sequence[Mapping[str, Any]], first: Sequence[Mapping[str, Any]]) -> str:
    """The share of the first's completion times that is saved; none where that can't be told."""
    if draws is first:
        return ""
    both = zip(draws, first, strict=True)
    mean, half = interval([1 - a["completion_mean_s"] / b["completion_mean_s"] for a, b in both])
    untold = UNTOLD if draws[0]["treatment"] != first[0]["treatment"] else 0.0
    return effect(mean, half, untold)


def effect(mean: float, half: float, untold: float = 0.0) -> str:
    """A share with half of its 95 % interval, in %; none where that or `untold` isn't smaller."""
    shown = share(mean, half)
    return f"none ({shown})" if abs(mean) <= max(half, untold) else shown


def share(mean: float, half: float) -> str:
    """A share with half of its 95 % interval, in %; without that where all draws agree, as then it
    is no error."""
    # Without a sign of its own, as -0.04 % has.
    shown = f"{round(mean, 3) + 0.0:+.1%}"
    return shown if half < 0.0005 else f"{shown} ± {100 * half:.1f}"


def render_loans(compared: Mapping[str, Mapping[str, Any]]) -> str:
    """For each trace a line per way to share a cluster; then what FaPES saves of each rival."""
    parts = []
    saved = [["trace", "FaPES against", "completion saved", "SLO met, more"]]
    for trace, found in compared.items():
        name = PurePath(trace).stem
        rows = [[name, *_LOANS]]
        for variant in zip(*found["draws"], strict=True):
            rows.append([variant[0]["variant"], *_means(variant, _LOANS)])
        parts.append(table(rows))
        for each in found["saved"]:
            time = effect(each["completion"], each["half"])
            saved.append([name, each["rival"], time, effect(each["slo"], each["slo_half"])])
    return "\n".join([*parts, table(saved)])


def two_digits(number: float) -> str:
    """A number of which two digits are known at most."""
    return f"{float(f'{number:.2g}'):,g}"


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows in columns as wide as their widest cell; the first is their head."""
    head, *rest = rows
    return render([Column(title, left=True) for title in head], rest) + "\n"
