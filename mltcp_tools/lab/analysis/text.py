# SPDX-License-Identifier: BSD-2-Clause
"""The tables of a result, which the text and the page share, and the text: 100 columns at most."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from mltcp_tools.lab.analysis.metrics import SETTLED_FROM

SCHEDULES = {
    "bound": "serves one burst at a time",
    "fair": "shares the link equally among the bursts",
    "alone": "gives each job a link of its own",
}
"""The computed schedules in the order in which they are shown, and what each does."""
SIMULATED = "Simulated, not measured; `mltcp simulate --help` describes the model."
"""A report's words on a run that was simulated."""

Row = list[str] | None


@dataclass(frozen=True)
class Table:
    """A table of a report. A row that is None separates others. notes: sentences below it."""

    title: str
    head: Sequence[str]
    rows: Sequence[Row]
    notes: Sequence[str] = ()

    def text(self) -> str:
        """The table for a terminal."""
        notes = [textwrap.fill(each, WIDTH, break_on_hyphens=False) for each in self.notes]
        return "\n".join([self.title, "", table(self.head, self.rows), *notes])


def render_text(result: Mapping[str, Any]) -> str:
    """Title, tables, warnings, problems and headline of a result (`mltcp-result/1`)."""
    experiment = result["experiment"]
    title = f"{experiment.get('name') or result['run']}"
    if experiment.get("description"):
        title += f": {experiment['description']}"
    parts = [textwrap.shorten(title, WIDTH, placeholder=" …")]
    if result["environment"].get("simulated"):
        parts[0] += f"\n{SIMULATED}"
    if result["variants"]:
        parts += [each.text() for each in tables(result)]
    else:
        parts.append("No iterations were recorded.")
    for heading, key in (
        ("Warnings", "warnings"),
        ("Problems", "problems"),
        ("In short", "headline"),
    ):
        if result[key]:
            parts.append("\n".join([heading, *bullets(result[key])]))
    return "\n\n".join(parts) + "\n"


def tables(result: Mapping[str, Any]) -> list[Table]:
    """The tables of a result, the main one first; those without rows are left out."""
    found = [
        _iteration_times(result),
        _bursts_and_link(result),
        _host(result),
        _jobs(result),
        _plans(result),
        *_neighbours(result),
        _repetitions(result),
    ]
    return [each for each in found if each.rows]


def _iteration_times(result: Mapping[str, Any]) -> Table:
    unit, seconds = time_unit(result)
    baseline = result["baseline"]
    comparable = baseline in result["speedup"]
    base = result["variants"][baseline]["iteration_s"] if comparable else None

    def row(name: str, entry: Mapping[str, Any], speedup: Mapping[str, Any] | None) -> list[str]:
        times = entry["iteration_s"] or {}
        return [
            clip(name),
            *(seconds(times.get(key)) for key in ("mean", "p50", "p95", "p99")),
            seconds(entry["settled_mean_s"]),
            interval(speedup, ".3f"),
            interval(entry.get("captured_gain")),
        ]

    rows: list[Row] = [
        row(name, entry, result["speedup"].get(name, {}).get(baseline, {}).get("mean"))
        for name, entry in result["variants"].items()
    ]
    alone = result["alone"]
    if alone:
        rows += [None, row(_measured_alone(alone), alone, None)]
    schedules = _schedules(result)
    if schedules:
        rows.append(None)
    for name, entry in schedules:
        faster = base["mean"] / entry["iteration_s"]["mean"] if base else None
        rows.append(row(name, entry, {"value": faster, "low": None, "high": None}))
    notes = [
        f"settled: mean from iteration {SETTLED_FROM} on. speed-up: the mean of {baseline} divided"
        " by the variant's. captured gain: the share of the bound's gain over"
        f" {baseline}, so 0 is no better than {baseline}, and 1 is the bound. In brackets: 95 %"
        " confidence intervals."
    ]
    if schedules:
        described = ", ".join(f"{name} {SCHEDULES[name]}" for name, _ in schedules)
        notes.append(
            "Computed from the jobs' bytes, the link's rate and the drawn compute times:"
            f" {described}."
        )
    if alone:
        how = "simulated" if result["environment"].get("simulated") else "measured"
        needs = sorted(each["alone_s"] for each in result["isolated"].values())
        least = " to ".join(dict.fromkeys(seconds(each) for each in (needs[:1] + needs[-1:])))
        notes.append(
            f"{_measured_alone(alone)}: {how}, each job with the link to itself. It communicates"
            f" for {seconds(alone['communication_s']['mean'])} {unit} per iteration; its bytes"
            f" need {least or NONE} {unit}."
        )
    head = ("variant", "mean", "p50", "p95", "p99", "settled", "speed-up", "captured gain")
    return Table(f"Iteration times ({unit})", head, rows, notes)


def _measured_alone(alone: Mapping[str, Any]) -> str:
    return f"alone ({alone['cc'] or 'its congestion control'})"


def _schedules(result: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """The computed schedules that have iterations, in the order in which they are shown."""
    entries = [(name, result["schedules"].get(name)) for name in SCHEDULES]
    return [(name, entry) for name, entry in entries if entry and entry["iteration_s"]]


def _bursts_and_link(result: Mapping[str, Any]) -> Table:
    rows: list[Row] = []
    for name, entry in [*result["variants"].items(), *_schedules(result)]:
        overlap, interleaved = entry["overlap"] or {}, entry["interleaved_from"]
        speedup = result["speedup"].get(name, {}).get(result["baseline"], {})
        link: Mapping[str, Any] = entry.get("link") or dict.fromkeys(
            ("utilisation", "drops", "packets")
        )
        drops, packets = link["drops"], link["packets"]
        if not overlap and "link" not in entry:
            continue
        rows.append(
            [
                clip(name),
                interval(speedup.get("p99"), ".3f"),
                *(number(overlap.get(key), ".0%") for key in ("run", "first_third", "last_third")),
                _iteration(interleaved),
                number(link["utilisation"], ".0%"),
                number(None if drops is None or not packets else drops / packets, ".2%"),
            ]
        )
    head = ("variant", "p99 speed-up", "overlap", "first third", "last third", "interleaved")
    note = (
        "overlap: share of communication time in which another job communicates, too, over the run"
        " and its thirds. interleaved: iteration from which the jobs are interleaved. link use:"
        " share of the link's rate. drops: share of packets."
    )
    return Table("Bursts and link", (*head, "link use", "drops"), rows, [note])


def _iteration(interleaved: Mapping[str, Any] | None) -> str:
    if not interleaved:
        return NONE
    return "never" if interleaved["typical"] is None else f"{interleaved['typical']:.0f}"


def _host(result: Mapping[str, Any]) -> Table:
    """The use of the link and the CPUs; no rows where nothing was watched."""
    rows: list[Row] = []
    for name, entry in result["variants"].items():
        disturbance = entry["disturbance"] or {}
        shares = (entry["cpu_busy"], disturbance.get("busiest"), disturbance.get("share"))
        if any(share is not None for share in shares):
            cells = (number(share, ".0%") for share in (entry["link"]["sending"], *shares))
            rows.append([clip(name), *cells])
    note = (
        "link while sending: share of its rate that the jobs reached while any of them sent. CPUs"
        " and busiest CPU: share of the time in use. disturbed: share of seconds in which other"
        " programs or the hypervisor took CPU time, or timers were late."
    )
    head = ("variant", "link while sending", "CPUs", "busiest CPU", "disturbed")
    return Table("Host", head, rows, [note])


def _jobs(result: Mapping[str, Any]) -> Table:
    """Each job, where jobs differ: equal jobs differ by random variation only."""
    unit, seconds = time_unit(result)
    rows: list[Row] = []
    for name, entry in result["variants"].items() if len(_parameters(result)) > 1 else ():
        _separate(rows)
        rows += [
            [
                clip(name),
                clip(job),
                *(seconds(each["iteration_s"][key]) for key in ("mean", "p50", "p95", "p99")),
                seconds(each["communication_s"]["mean"]),
                number(each["ratio_to_alone"], ".3f"),
                number(each["ratio_to_bound"], ".3f"),
                number(each["overlap"], ".0%"),
            ]
            for job, each in entry["jobs"].items()
        ]
    times = ("mean", "p50", "p95", "p99", "communication", "÷ alone", "÷ bound", "overlap")
    note = "÷ alone, ÷ bound: mean iteration time divided by that schedule's."
    return Table(f"Jobs ({unit})", ("variant", "job", *times), rows, [note])


def _separate(rows: list[Row]) -> None:
    if rows:
        rows.append(None)


def _parameters(result: Mapping[str, Any]) -> set[tuple[str, str]]:
    jobs = result["experiment"].get("jobs")
    if not isinstance(jobs, list):
        return set()
    return {
        (str(job.get("bytes")), str(job.get("compute"))) for job in jobs if isinstance(job, dict)
    }


def _plans(result: Mapping[str, Any]) -> Table:
    """Per variant with planned time shifts and job: its shift, and how it kept to it."""
    rows: list[Row] = []
    notes = []
    for variant, entry in result["variants"].items():
        plan = entry["plan"]
        if not plan:
            continue
        _separate(rows)
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
        notes.append(
            f"{variant}: compatibility score {number(plan['score'], '.3f')} of at most"
            f" {number(plan['bound'], '.3f')}; periods {number(plan['stretch'], '.1%')} longer than"
            f" iterations alone; {number(plan['realigned_per_minute'], '.1f')} re-alignments per"
            " minute and job."
        )
    head = ("variant", "job", "shift", "period", "wait", "re-aligned", "per minute")
    return Table("Planned time shifts (ms)", head, rows, notes)


def _milliseconds(seconds: float | None) -> str:
    return NONE if seconds is None else f"{seconds * 1e3:.1f}"


def _neighbours(result: Mapping[str, Any]) -> Iterator[Table]:
    """Bulk flows, then requests: each next to each variant."""
    entries = [
        (clip(variant), clip(name), each)
        for variant, entry in result["variants"].items()
        for name, each in entry["neighbours"].items()
    ]
    bases = [f"{variant}: {e['base']}" for variant, e in result["variants"].items() if e["base"]]
    note = (
        "÷ base: the value next to the variant divided by the value next to its base"
        f" ({', '.join(bases) or 'none'})."
    )
    bulk: list[Row] = [
        [
            *(variant, name, each["cc"] or NONE),
            *(f"{each['throughput_bps'][key] / 1e6:.1f}" for key in ("mean", "min", "max")),
            number(each["ratio_to_base"], ".2f"),
        ]
        for variant, name, each in entries
        if each["kind"] == "bulk"
    ]
    head = ("variant", "flow", "congestion control", "mean", "lowest", "highest", "÷ base")
    yield Table("Neighbours: throughput of bulk flows (Mbit/s)", head, bulk, [note])
    requests: list[Row] = [
        [
            *(variant, name, each["cc"] or NONE),
            *(
                _milliseconds((each["completion_s"] or {}).get(key))
                for key in ("mean", "p50", "p99")
            ),
            *(number((each["ratio_to_base"] or {}).get(key), ".2f") for key in ("mean", "p99")),
        ]
        for variant, name, each in entries
        if each["kind"] == "requests"
    ]
    head = ("variant", "requests", "congestion control", "mean", "p50", "p99", "÷ base")
    title = "Neighbours: completion time of requests (ms)"
    yield Table(title, (*head, "p99 ÷ base"), requests, [note])


def _repetitions(result: Mapping[str, Any]) -> Table:
    unit, seconds = time_unit(result)
    entries = {**result["variants"], **dict(_schedules(result))}
    means = {
        name: {int(number): mean for number, mean in entry["means_s"].items()}
        for name, entry in entries.items()
        if len(entry["means_s"]) > 1
    }
    numbers = sorted({number for each in means.values() for number in each})
    numbers = numbers if len(numbers) <= 8 else []
    rows: list[Row] = [
        [
            clip(name),
            *(seconds(each.get(number)) for number in numbers),
            *(seconds(extreme(each.values())) for extreme in (min, max)),
        ]
        for name, each in means.items()
    ]
    head = ("repetition", *(str(number) for number in numbers), "lowest", "highest")
    return Table(f"Mean iteration time in each repetition ({unit})", head, rows)
