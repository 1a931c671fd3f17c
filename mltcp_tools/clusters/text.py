"""Outcomes of cluster runs, and the validation, as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from mltcp_tools.clusters.validate import Case
from mltcp_tools.units import format_seconds


def render_summaries(summaries: Sequence[dict[str, Any]]) -> str:
    """A line per policy and treatment."""
    rows = [
        (
            "policy",
            "treatment",
            "completion",
            "p99",
            "queueing",
            "slow-down",
            "utilisation",
            "restarts",
        )
    ]
    for each in summaries:
        rows.append(
            (
                each["policy"],
                each["treatment"],
                long(each["completion_mean_s"]),
                long(each["completion_p99_s"]),
                long(each["queueing_mean_s"]),
                f"{each['slowdown_mean']:.3f}",
                f"{each['utilisation']:.1%}",
                str(each["restarts"]),
            )
        )
    return _table(rows)


def render_loans(compared: Mapping[str, Mapping[str, Any]]) -> str:
    """For each trace a line per way to share a cluster; then which goals FaPES reaches."""
    parts = []
    goals = [("trace", "goal", "wanted", "reached", "possible", "")]
    for trace, found in compared.items():
        name = PurePath(trace).stem
        rows = [
            (
                name,
                "completion",
                "p99",
                "goodput",
                "GPUs left",
                "SLO met",
                "wait p99",
                "reclaimed",
                "restarts",
            )
        ]
        rows += [
            (
                each["arm"],
                long(each["completion_mean_s"]),
                long(each["completion_p99_s"]),
                f"{each['goodput']:.1f} GPUs",
                f"{each['left_gpus']:.1f}",
                f"{each['slo_attainment']:.2%}",
                format_seconds(each["wait_p99_s"]),
                str(each["reclaimed"]),
                str(each["restarts"]),
            )
            for each in found["arms"]
        ]
        parts.append(_table(rows))
        for goal in found["goals"]:
            shown = "{:.2f}x" if goal["what"].startswith("goodput") else "{:.1%}"
            goals.append(
                (
                    name,
                    goal["what"],
                    shown.format(goal["wanted"]),
                    shown.format(goal["reached"]),
                    "" if goal["possible"] is None else shown.format(goal["possible"]),
                    "holds" if goal["holds"] else "missed",
                )
            )
    return "\n".join([*parts, _table(goals)])


def render_learned(results: Sequence[dict[str, Any]]) -> str:
    """Mean completion times of schedulers that learn and of their rivals, set by set."""
    parts = []
    for each in results:
        times = dict(each["rivals_s"]) | each["greedy_s"] | {"marl, untrained": each["untrained_s"]}
        times |= {f"marl, seed {seed}": value for seed, value in each["learned_s"].items()}
        rows = [(each["held_out"], "completion")]
        rows += [(name, long(value)) for name, value in sorted(times.items(), key=lambda t: t[1])]
        notes = [
            _gain(f"{each['gain']:.1%} below {each['best_rival']}", each["gain_half"], "seeds")
        ]
        if each["workloads"] > 1:
            by = f"workload by workload {each['gain_by_workload']:.1%}"
            notes.append(_gain(by, each["gain_by_workload_half"], "workloads"))
        notes.append(f"untrained {each['gain_untrained']:.1%}")
        parts.append(f"{_table(rows)}{'; '.join(notes)}\n")
    return "\n".join(parts)


def _gain(words: str, half: float | None, over: str) -> str:
    return words if half is None else f"{words} ± {100 * half:.1f} (95 %, over {over})"


def render_cases(cases: Sequence[Case]) -> str:
    """Iteration times by packets and by flows, with the error."""
    rows = [("experiment", "arm", "rule", "packets", "flows", "error", "")]
    for case in cases:
        note = "" if abs(case.error) <= case.limit else f"beyond {case.limit:.0%}"
        rows.append(
            (
                case.experiment,
                case.arm,
                case.rule,
                format_seconds(case.packets_s),
                format_seconds(case.flows_s),
                f"{case.error:+.1%}",
                note,
            )
        )
    return _table(rows)


def long(seconds: float) -> str:
    """Seconds, minutes or hours with one decimal."""
    if seconds >= 3600:
        return f"{seconds / 3600:.2f} h"
    if seconds >= 60:
        return f"{seconds / 60:.1f} min"
    return f"{seconds:.1f} s"


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return "\n".join(lines) + "\n"
