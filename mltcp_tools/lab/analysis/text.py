# SPDX-License-Identifier: BSD-2-Clause
"""A result as text for a terminal, at most 100 columns wide."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from typing import Any

from mltcp_tools.base.cells import (
    NONE,
    WIDTH,
    bullets,
    clip,
    interval,
    number,
    table,
    time_unit,
)

# In the order in which they are shown.
SCHEDULES = {
    "bound": "one burst at a time",
    "fair": "equal shares",
    "alone": "a link for each job",
}

SIMULATED = "Simulated, not measured; `mltcp simulate --help` says what is modelled."
"""A report's words on a run that was simulated."""


def render_text(result: Mapping[str, Any]) -> str:
    """Tables, spread over repetitions, warnings and problems of a result (`mltcp-result/1`)."""
    experiment = result["experiment"]
    title = f"{experiment.get('name') or result['run']}"
    if experiment.get("description"):
        title += f": {experiment['description']}"
    parts = [textwrap.shorten(title, WIDTH, placeholder=" …")]
    if result["environment"].get("simulated"):
        parts[0] += f"\n{SIMULATED}"
    if result["variants"]:
        parts += [variants_table(result), _legend(result)]
        parts += details(result)
    else:
        parts.append("No iterations were recorded.")
    for heading, key in (
        ("Not as expected", "missed"),
        ("Warnings", "warnings"),
        ("Problems", "problems"),
    ):
        if result[key]:
            parts.append("\n".join([heading, *bullets(result[key])]))
    parts.append("\n".join(["In short", *bullets(result["headline"])]))
    return "\n\n".join(parts) + "\n"


def details(result: Mapping[str, Any]) -> list[str]:
    """The tables beside the main one, as far as the run has what they show."""
    parts = (
        _details_table(result),
        _host_table(result),
        _jobs_table(result),
        plans_table(result),
        phases_table(result),
        neighbours_table(result),
        _spread_table(result),
    )
    return [part for part in parts if part]


def variants_table(result: Mapping[str, Any]) -> str:
    """One line per variant, then one per schedule."""
    unit, seconds = time_unit(result)
    times = (f"mean {unit}", "p50", "p95", "p99", "late", "x mean", "x p99")
    head = ("variant", *times, "captured gain", "olap", "from", "link")
    speedup, baseline = result["speedup"], result["baseline"]

    def cells(name: str, entry: Mapping[str, Any], estimates: Mapping[str, Any]) -> list[str]:
        times = entry["iteration_s"] or dict.fromkeys(("mean", "p50", "p95", "p99"))
        overlap, interleaved = entry["overlap"], entry["interleaved_from"]
        typical = interleaved["typical"] if interleaved else None
        link = entry.get("link")
        return [
            clip(name),
            *(seconds(times[key]) for key in ("mean", "p50", "p95", "p99")),
            seconds(entry["settled_mean_s"]),
            *(number((estimates.get(key) or {}).get("value"), ".2f") for key in ("mean", "p99")),
            interval(entry["captured_gain"]),
            number(overlap["run"] if overlap else None, ".0%"),
            NONE if not interleaved else "never" if typical is None else f"{typical:.0f}",
            number(link["utilisation"] if link else None, ".0%"),
        ]

    rows: list[list[str] | None] = [
        cells(name, entry, speedup.get(name, {}).get(baseline, {}))
        for name, entry in result["variants"].items()
    ]
    if result["alone"]:
        nothing = dict.fromkeys(("captured_gain", "overlap", "interleaved_from"))
        title = f"alone ({result['alone']['cc']})" if result["alone"]["cc"] else "alone"
        rows += [None, cells(title, nothing | result["alone"] | {"link": None}, {})]
    base = result["variants"].get(baseline)
    if result["schedules"]:
        rows.append(None)
        for name in SCHEDULES:
            entry = result["schedules"].get(name)
            if entry and entry["iteration_s"]:
                rows.append(cells(name, entry, _ratios(base, entry)))
    return table(head, rows)


def _ratios(base: Mapping[str, Any] | None, entry: Mapping[str, Any]) -> dict[str, Any]:
    if not base or not base["iteration_s"]:
        return {}
    return {
        key: {"value": base["iteration_s"][key] / entry["iteration_s"][key]}
        for key in ("mean", "p99")
        if entry["iteration_s"][key] > 0
    }


def _legend(result: Mapping[str, Any]) -> str:
    baseline = result["baseline"]
    lines = [
        f"Iteration times. late: mean from iteration {result['settled_from']} on. x: how many "
        f"times faster than {baseline}. captured gain: 0 is {baseline}, 1 the bound [95 % "
        "interval]. olap: share of communication time during which other jobs communicate, too. "
        "from: iteration from which the jobs are interleaved. link: share of the rate used."
    ]
    if result["schedules"]:
        described = "; ".join(
            f"{name}: {text}" for name, text in SCHEDULES.items() if name in result["schedules"]
        )
        lines.append(
            "Computed from the jobs' bytes, what the link carries, and the compute times drawn: "
            f"{described}."
        )
    alone = result["alone"]
    if alone:
        unit, seconds = time_unit(result)
        comm = alone["communication_s"]
        how = "simulated" if result["environment"].get("simulated") else "measured"
        lines.append(
            f"alone ({alone['cc'] or 'its congestion control'}): {how}, each job with the link to "
            f"itself; {seconds(comm['mean'])} {unit} per iteration communicating, where its bytes "
            f"need {_needs(result, seconds)} {unit}."
        )
    return "\n".join(textwrap.fill(line, WIDTH) for line in lines)


def _needs(result: Mapping[str, Any], seconds: Callable[[float | None], str]) -> str:
    """Return the jobs' needs alone, the least and the most of them."""
    needs = sorted(result["isolated_comm_s"].values())
    return " to ".join(dict.fromkeys(seconds(each) for each in (needs[:1] + needs[-1:]))) or NONE


def _details_table(result: Mapping[str, Any]) -> str:
    baseline = result["baseline"]
    unit, seconds = time_unit(result)
    spread = any(entry["spread_of_completion"] for entry in result["variants"].values())
    rows = []
    for name, entry in result["variants"].items():
        estimates = result["speedup"].get(name, {}).get(baseline, {})
        completion = entry["spread_of_completion"] or dict.fromkeys(("mean", "p99"))
        overlap, link = entry["overlap"] or {}, entry["link"]
        loss = (
            link["drops"] / link["packets"]
            if link["packets"] and link["drops"] is not None
            else None
        )
        rows.append(
            [
                clip(name),
                *(interval(estimates.get(key), ".3f") for key in ("mean", "p99")),
                number(overlap.get("first_third"), ".0%"),
                number(overlap.get("last_third"), ".0%"),
                number(loss, ".2%"),
                *(seconds(completion[key]) for key in ("mean", "p99") if spread),
            ]
        )
    head = ["variant", "x mean [95 %]", "x p99 [95 %]", "olap 1st third", "last", "drops"]
    if not spread:
        return table(head, rows)
    return table([*head, f"spread {unit}", "p99"], rows) + (
        "\nspread: time between the first and the last flow of a burst to be done."
    )


def _host_table(result: Mapping[str, Any]) -> str:
    """The use of the link and the CPUs; nothing where nobody watched."""
    shown = {name: entry["disturbance"] or {} for name, entry in result["variants"].items()}
    if not any(shown.values()) and all(e["cpu_busy"] is None for e in result["variants"].values()):
        return ""
    rows = [
        [
            clip(name),
            number(result["variants"][name]["link"]["sending"], ".0%"),
            number(result["variants"][name]["cpu_busy"], ".0%"),
            number(disturbance.get("busiest"), ".0%"),
            number(disturbance.get("share"), ".0%"),
        ]
        for name, disturbance in shown.items()
    ]
    return table(["variant", "link while sending", "CPUs", "busiest", "disturbed"], rows) + (
        "\nlink while sending: share of its rate that jobs reached while any of them sent. CPUs,"
        " busiest: share\nof the time in use, of all and of the busiest one."
    )


def _jobs_table(result: Mapping[str, Any]) -> str:
    """Per job, where jobs differ: equal jobs differ by chance only."""
    if len(_parameters(result)) < 2:
        return ""
    unit, seconds = time_unit(result)
    rows: list[list[str] | None] = []
    for name, entry in result["variants"].items():
        if rows:
            rows.append(None)
        for job, each in entry["jobs"].items():
            times, comm = each["iteration_s"], each["communication_s"]
            rows.append(
                [
                    clip(name),
                    clip(job),
                    *(seconds(times[key]) for key in ("mean", "p50", "p95", "p99")),
                    seconds(comm["mean"]),
                    number(each["ratio_to_alone"], ".3f"),
                    number(each["ratio_to_bound"], ".3f"),
                    number(each["overlap"], ".0%"),
                ]
            )
    head = (
        "variant",
        "job",
        f"mean {unit}",
        "p50",
        "p95",
        "p99",
        "comm",
        "/alone",
        "/bound",
        "olap",
    )
    return table(head, rows)


def _parameters(result: Mapping[str, Any]) -> set[tuple[str, str]]:
    jobs = result["experiment"].get("jobs")
    if not isinstance(jobs, list):
        return set()
    return {
        (str(job.get("bytes")), str(job.get("compute"))) for job in jobs if isinstance(job, dict)
    }


def plans_table(result: Mapping[str, Any]) -> str:
    """Per variant with a plan and job: its shift and slot, and how it kept to them."""
    rows: list[list[str] | None] = []
    scores = []
    for variant, entry in result["variants"].items():
        plan = entry["plan"]
        if not plan:
            continue
        if rows:
            rows.append(None)
        rows += [
            [
                clip(variant),
                clip(job),
                *(_milliseconds(each[key]) for key in ("shift_s", "period_s", "waited_s")),
                number(each["realigned"], ".0f"),
                number(each["realigned_per_minute"], ".1f"),
            ]
            for job, each in plan["jobs"].items()
        ]
        per_minute = number(plan["realigned_per_minute"], ".1f")
        scores.append(
            f"{variant}: score {number(plan['score'], '.3f')} of at most"
            f" {number(plan['bound'], '.3f')}, time shifts {number(plan['stretch'], '.1%')}"
            f" longer than"
            f" iterations alone, {per_minute} re-alignments per minute and job"
        )
    if not rows:
        return ""
    head = ["variant", "job", "shift ms", "slot ms", "waits", "re-aligned", "per minute"]
    lines = [textwrap.fill(f"{each}.", WIDTH, break_on_hyphens=False) for each in scores]
    return "\n".join([table(head, rows), *lines])


def _milliseconds(seconds: float | None) -> str:
    return NONE if seconds is None else f"{seconds * 1e3:.1f}"


def phases_table(result: Mapping[str, Any]) -> str:
    """Per variant and phase, where jobs come late or leave early."""
    unit, seconds = time_unit(result)
    rows: list[list[str] | None] = []
    for variant, entry in result["variants"].items():
        if rows and entry["phases"]:
            rows.append(None)
        for phase in entry["phases"]:
            times = phase["iteration_s"]
            rows.append(
                [
                    clip(variant),
                    clip(", ".join(phase["jobs"]), 40),
                    *(seconds(times[key]) for key in ("mean", "p50", "p99")),
                    seconds(phase["bound_s"]),
                    str(times["count"]),
                ]
            )
    if not rows:
        return ""
    return table(
        ["variant", "while these run", f"mean {unit}", "p50", "p99", "bound", "iterations"], rows
    )


def neighbours_table(result: Mapping[str, Any]) -> str:
    """Per variant and neighbour what it got, and over what it got in the variant's base."""
    rows: list[list[str] | None] = []
    for variant, entry in result["variants"].items():
        if rows and entry["neighbours"]:
            rows.append(None)
        for name, each in entry["neighbours"].items():
            row = [clip(variant), clip(name), each["cc"] or NONE]
            ratio = each["ratio_to_base"]
            if each["kind"] == "bulk":
                rate = each["throughput_bps"]
                cells = [f"{rate[key] / 1e6:.1f}" for key in ("mean", "min", "max")]
                rows.append([*row, *cells, number(ratio, ".2f"), *[NONE] * 5])
            else:
                times, ratio = each["completion_s"] or {}, ratio or {}
                cells = [
                    NONE if key not in times else f"{times[key] * 1e3:.1f}"
                    for key in ("mean", "p50", "p99")
                ]
                ratios = [number(ratio.get(key), ".2f") for key in ("mean", "p99")]
                rows.append([*row, *[NONE] * 4, *cells, *ratios])
    if not rows:
        return ""
    head = ["variant", "neighbour", "cc", "Mbit/s", "min", "max", "/base"]
    shown = [table([*head, "mean ms", "p50", "p99", "/base", "p99"], rows)]
    bases = [f"{variant}: {e['base']}" for variant, e in result["variants"].items() if e["base"]]
    shown.append(
        "Bulk flows: throughput, its mean, lowest and highest repetition; requests: completion "
        f"time. /base: over that next to the variant's base ({', '.join(bases) or 'none'})."
    )
    jain = [
        f"{variant} {e['jain']['value']:.3f}" + _of_base(e["jain"]["ratio_to_base"])
        for variant, e in result["variants"].items()
        if e["jain"]
    ]
    if jain:
        shown.append(f"Jain index of the bulk flows: {'; '.join(jain)}.")
    return "\n".join([shown[0], *(textwrap.fill(line, WIDTH) for line in shown[1:])])


def _of_base(ratio: float | None) -> str:
    return "" if ratio is None else f" ({ratio:.2f} of its base)"


def _spread_table(result: Mapping[str, Any]) -> str:
    numbers = sorted(
        {each["repetition"] for e in result["variants"].values() for each in e["per_repetition"]}
    )
    if len(numbers) < 2 or len(numbers) > 8:
        numbers = []
    unit, seconds = time_unit(result)
    rows: list[list[str]] = []
    entries = {**result["variants"], **result["schedules"]}
    for name, entry in entries.items():
        means = {each["repetition"]: each["mean_s"] for each in entry["per_repetition"]}
        spread = entry["spread_s"]
        if len(means) < 2 or not spread:
            continue
        rows.append(
            [
                clip(name),
                *(seconds(means.get(number)) for number in numbers),
                f"{seconds(spread['min'])} … {seconds(spread['max'])}",
            ]
        )
    if not rows:
        return ""
    head = [f"mean {unit} in repetition", *(str(number) for number in numbers), "min … max"]
    return table(head, rows)
