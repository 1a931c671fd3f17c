"""The matrix in text and in three plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.ticker import NullFormatter

from mltcp_tools.clusters.question import (
    ADDED,
    CASSINI,
    SAVED,
    SHARED,
    Cell,
    Difference,
    Missing,
    free,
)
from mltcp_tools.clusters.rules import UNTOLD
from mltcp_tools.figures import png, subplots


def render(
    found: Sequence[Cell],
    apart: Sequence[Difference] = (),
    saved: Sequence[Difference] = (),
    left_out: Sequence[Missing] = (),
) -> str:
    """Tables in Markdown: slow-downs by workload, policy and treatment, what is missing there and
    why, what slow-downs and completion times say, and how sure that is."""
    lines = []
    policies = dict.fromkeys([c.policy for c in found] + [each.policy for each in left_out])
    for workload in dict.fromkeys(each.workload for each in found):
        own = {(c.policy, c.treatment): c for c in found if c.workload == workload}
        treatments = list(dict.fromkeys(how for _, how in own))
        lines += _head(workload, *treatments)
        for policy in policies:
            row = [_cell(own.get((policy, how))) for how in treatments]
            lines.append(f"| {policy} | {' | '.join(row)} |")
        lines.append("")
    reasons: dict[tuple[str, str], list[str]] = {}
    for each in left_out:
        reasons.setdefault((each.policy, each.reason), []).append(each.workload)
    lines += [
        f"- No {policy} on {', '.join(workloads)}: {reason}."
        for (policy, reason), workloads in reasons.items()
    ]
    others = list(dict.fromkeys(c.policy for c in found if c.slowdown is None))
    if others:
        lines.append(
            f"- No slow-downs of {', '.join(others)}: jobs have other numbers of GPUs than they ask"
            " for, so that their iterations are others than those alone."
        )
    if apart:
        lines += ["", *_differences("slow-down, minus reno's", apart, "{:+.3f} ± {:.3f}", 1)]
    if saved:
        workloads = list(dict.fromkeys(each.workload for each in saved))
        of = {what: [free(saved, each, what) for each in workloads] for what in (CASSINI, SHARED)}
        parts = {f"mltcp's part of what {what} saves": each for what, each in of.items()}
        title = "completion time of packing under reno, saved by"
        first = [each for each in saved if each.what in SAVED]
        lines += ["", *_differences(title, first, "{:+.1f}% ± {:.1f}", 100)]
        for what, shares in parts.items():
            shown = [_sure(each, "{:.0f}% ± {:.0f}", 100) for each in shares]
            lines.append(f"| {what} | {' | '.join(shown)} |")
        title = "completion time saved where one is added to the other"
        second = [each for each in saved if each.what in ADDED]
        lines += ["", *_differences(title, second, "{:+.1f}% ± {:.1f}", 100)]
    return "\n".join(lines) + "\n"


def _head(*columns: str) -> list[str]:
    return [f"| {' | '.join(columns)} |", "| --- " * len(columns) + "|"]


def _cell(cell: Cell | None) -> str:
    if cell is None:
        return "-"
    minutes = f"({cell.completion_s / 60:.1f})"
    return minutes if cell.slowdown is None else f"{cell.slowdown:.3f} {minutes}"


def _differences(title: str, those: Sequence[Difference], form: str, factor: float) -> list[str]:
    """A row for each difference, a column for each workload."""
    workloads = list(dict.fromkeys(each.workload for each in those))
    found = {(each.what, each.workload): each for each in those}
    lines = _head(title, *workloads)
    for what in dict.fromkeys(each.what for each in those):
        shown = [_sure(found.get((what, each)), form, factor) for each in workloads]
        lines.append(f"| {what} | {' | '.join(shown)} |")
    return lines


def _sure(each: Difference | None, form: str, factor: float) -> str:
    """With its interval, which one draw hasn't; `-` for what is missing. What can't be told from
    none, by the interval or by the error of MLTCP's rule, is called that."""
    if each is None:
        return "-"
    if each.half is None:
        return form.partition(" ±")[0].format(each.mean * factor) + " (one draw)"
    shown = form.format(each.mean * factor, each.half * factor)
    untold = UNTOLD if "mltcp" in each.what else 0.0
    return shown if abs(each.mean) > max(each.half, untold) else f"none ({shown})"


def draw(
    found: Sequence[Cell], saved: Sequence[Difference], results: Sequence[Mapping[str, Any]]
) -> dict[str, bytes]:
    """PNGs by name: completion times, what is saved of them, and their distribution over jobs."""
    return {"completion": _heat(found), "gains": _gains(saved), "jobs": _cdf(results)}


def _heat(found: Sequence[Cell]) -> bytes:
    workloads = list(dict.fromkeys(each.workload for each in found))
    policies = list(dict.fromkeys(each.policy for each in found))
    treatments = list(dict.fromkeys(each.treatment for each in found))
    figure, axes = subplots(
        1, len(workloads), figsize=(4.2 * len(workloads), 3.6), squeeze=False, sharey=True
    )
    for axis, workload in zip(axes[0], workloads, strict=True):
        own = {(c.policy, c.treatment): c.completion_s for c in found if c.workload == workload}
        base_s = own["packed", "reno"]
        table = np.array(
            [
                [own.get((policy, how), float("nan")) / base_s for how in treatments]
                for policy in policies
            ]
        )
        axis.imshow(np.log2(table), cmap="RdYlGn_r", vmin=-1.0, vmax=1.0, aspect="auto")
        for (row, column), ratio in np.ndenumerate(table):
            shown = "-" if np.isnan(ratio) else f"{ratio:.2f}"
            axis.text(column, row, shown, ha="center", va="center", fontsize=7)
        axis.set_xticks(range(len(treatments)), treatments, rotation=60, ha="right")
        axis.set_yticks(range(len(policies)), policies)
        axis.set_title(workload)
    figure.suptitle("mean completion time over that of packing under reno")
    return png(figure)


def _gains(saved: Sequence[Difference]) -> bytes:
    workloads = list(dict.fromkeys(each.workload for each in saved))
    figure, axis = subplots(figsize=(8, 3.6))
    for place, what in enumerate(SAVED):
        own = {each.workload: each for each in saved if each.what == what}
        axis.bar(
            [number + place * 0.16 for number, each in enumerate(workloads) if each in own],
            [100 * own[each].mean for each in workloads if each in own],
            yerr=[100 * (own[each].half or 0.0) for each in workloads if each in own],
            width=0.15,
            capsize=2,
            label=what,
        )
    axis.set_xticks([n + 0.32 for n in range(len(workloads))], workloads)
    axis.set_ylabel("of packing's completion\ntime under reno saved, %")
    axis.axhline(0, color="black", linewidth=0.5)
    axis.legend(ncols=5, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.1))
    return png(figure)


def _cdf(results: Sequence[Mapping[str, Any]]) -> bytes:
    shown = [("random", "reno"), ("packed", "reno"), *(column for column, _ in SAVED.values())]
    workloads = list(dict.fromkeys(each["workload"] for each in results))
    figure, axes = subplots(1, len(workloads), figsize=(4.2 * len(workloads), 3.2), squeeze=False)
    for axis, workload in zip(axes[0], workloads, strict=True):
        # What coincides with a line before it is seen beneath it.
        for width, (policy, how) in zip(np.linspace(4, 1, len(shown)), shown, strict=True):
            minutes = sorted(
                value / 60
                for each in results
                if (each["workload"], each["policy"], each["treatment"]) == (workload, policy, how)
                for value in each["completion_s"]
            )
            if minutes:
                shares = [(n + 1) / len(minutes) for n in range(len(minutes))]
                axis.plot(minutes, shares, label=f"{policy}, {how}", linewidth=width)
        axis.set_title(workload)
        axis.set_xscale("log")
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.set_xlabel("completion time, minutes")
        axis.set_ylabel("share of jobs")
    axes[0][-1].legend(fontsize=8)
    return png(figure)
