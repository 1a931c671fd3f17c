"""The matrix in text and in three plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib

from mltcp_tools.clusters.drawing import png
from mltcp_tools.clusters.question import Answer, Cell, Difference

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def render(found: Sequence[Cell], given: Sequence[Answer], apart: Sequence[Difference] = ()) -> str:
    """Tables in Markdown: slow-downs by workload, policy and treatment, what they say, and how sure
    that is."""
    lines = []
    for workload in dict.fromkeys(each.workload for each in found):
        own = {(c.policy, c.treatment): c for c in found if c.workload == workload}
        policies = list(dict.fromkeys(policy for policy, _ in own))
        treatments = list(dict.fromkeys(how for _, how in own))
        lines += [
            f"| {workload} | {' | '.join(treatments)} |",
            "| --- " * (1 + len(treatments)) + "|",
        ]
        for policy in policies:
            row = [
                f"{own[policy, how].slowdown:.3f} ({own[policy, how].completion_s / 60:.1f})"
                for how in treatments
            ]
            lines.append(f"| {policy} | {' | '.join(row)} |")
        lines.append("")
    lines += [
        "| of packing's excess under reno | excess | mltcp | network + mltcp | placement | turns |"
        " cassini (both) | all | mltcp / cassini |",
        "| --- " * 9 + "|",
    ]
    for each in given:
        share = "-" if each.share != each.share else f"{each.share:.0%}"
        lines.append(
            f"| {each.workload} | {each.excess:.3f} | {each.mltcp:.0%} | {each.network:.0%} |"
            f" {each.placement:.0%} | {each.turns:.0%} | {each.cassini:.0%} | {each.all:.0%} |"
            f" {share} |"
        )
    if apart:
        workloads = list(dict.fromkeys(each.workload for each in apart))
        lines += [
            "",
            f"| slow-down, minus reno's | {' | '.join(workloads)} |",
            "| --- " * (1 + len(workloads)) + "|",
        ]
        for what in dict.fromkeys(each.what for each in apart):
            those = [each for each in apart if each.what == what]
            shown = " | ".join(f"{each.mean:+.3f} ± {each.half:.3f}" for each in those)
            lines.append(f"| {what} | {shown} |")
    return "\n".join(lines) + "\n"


def draw(
    found: Sequence[Cell], given: Sequence[Answer], results: Sequence[Mapping[str, Any]]
) -> dict[str, bytes]:
    """PNGs by name: slow-downs, gains, and the distribution of jobs' slow-downs."""
    return {"slowdown": _heat(found), "gains": _gains(given), "jobs": _cdf(results)}


def _heat(found: Sequence[Cell]) -> bytes:
    workloads = list(dict.fromkeys(each.workload for each in found))
    figure, axes = plt.subplots(1, len(workloads), figsize=(4.2 * len(workloads), 3.4))
    for axis, workload in zip(axes, workloads, strict=True):
        own = {(c.policy, c.treatment): c.slowdown for c in found if c.workload == workload}
        policies = list(dict.fromkeys(policy for policy, _ in own))
        treatments = list(dict.fromkeys(how for _, how in own))
        table = [[own[policy, how] for how in treatments] for policy in policies]
        image = axis.imshow(table, cmap="viridis_r", vmin=1.0, aspect="auto")
        axis.set_xticks(range(len(treatments)), treatments, rotation=60, ha="right")
        axis.set_yticks(range(len(policies)), policies)
        axis.set_title(f"{workload}: iteration over alone")
        figure.colorbar(image, ax=axis)
    return png(figure)


def _gains(given: Sequence[Answer]) -> bytes:
    figure, axis = plt.subplots(figsize=(7, 3.4))
    names = ("mltcp", "placement", "turns", "cassini", "all")
    for place, name in enumerate(names):
        axis.bar(
            [number + place * 0.16 for number in range(len(given))],
            [100 * getattr(each, name) for each in given],
            width=0.15,
            label=name,
        )
    axis.set_xticks([n + 0.32 for n in range(len(given))], [each.workload for each in given])
    axis.set_ylabel("of packing's excess gone, %")
    axis.axhline(0, color="black", linewidth=0.5)
    axis.legend(ncols=len(names), fontsize=8)
    return png(figure)


def _cdf(results: Sequence[Mapping[str, Any]]) -> bytes:
    shown = [("packed", "reno"), ("packed", "mltcp"), ("cassini", "turns"), ("random", "reno")]
    workloads = list(dict.fromkeys(each["workload"] for each in results))
    figure, axes = plt.subplots(1, len(workloads), figsize=(4.2 * len(workloads), 3.2))
    for axis, workload in zip(axes, workloads, strict=True):
        for policy, how in shown:
            values = sorted(
                value
                for each in results
                if (each["workload"], each["policy"], each["treatment"]) == (workload, policy, how)
                for value in each["slowdown"]
            )
            shares = [(n + 1) / len(values) for n in range(len(values))]
            axis.plot(values, shares, label=f"{policy}, {how}")
        axis.set_title(workload)
        axis.set_xlabel("job's iteration over alone")
        axis.set_ylabel("share of jobs")
    axes[0].legend(fontsize=8)
    return png(figure)
