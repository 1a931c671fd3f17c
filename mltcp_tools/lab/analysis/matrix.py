# SPDX-License-Identifier: BSD-2-Clause
"""The table of a matrix: its scenarios' results, and a verdict on every MLTCP variant.

The document, schema `mltcp-matrix/1` (times in seconds; `estimate` as in result.py):

    schema      "mltcp-matrix/1"
    name            of the matrix
    scenarios       {scenario: entry}, in the matrix's order
        description     of the scenario
        problem         null, or the reason why it has no result, one sentence
        bound           {mean_s, p99_s}, or null
        variants            {variant: entry}
            cc, base            congestion control; the variant it is compared with, or null
            mean_s, p99_s       of iteration times
            spread_s            {min, max} of the repetitions' means
            captured_gain       estimate, or null
            over_base           estimate: mean over the base's, on the iterations both have, or null
            bulk_bps            {neighbour: mean throughput of its bulk flow, bit/s}
            bulk_over_base      lowest throughput of a neighbour's bulk flow over that next to the
                                base, or null
            requests_over_base  longest mean completion time of a neighbour's requests over that
                                next to the base, or null
            slower              over_base is above SLOWER
            best_mean, best_p99 at least as fast as every variant that isn't MLTCP's; null for those
            cpu_busy            highest share of CPU time in use over repetitions
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

from mltcp_tools.base.cells import NONE, WIDTH, bullets, clip, interval, number, table
from mltcp_tools.kernel.congestion_controls import is_mltcp
from mltcp_tools.lab.analysis.result import plain
from mltcp_tools.lab.runs.disturbance import BUSY_CPU

SCHEMA = "mltcp-matrix/1"
SLOWER = 1.02
"""A variant whose mean is more than this times its base's counts as slower."""

Entry = dict[str, Any]


def summarise_matrix(
    name: str,
    descriptions: Mapping[str, str],
    results: Mapping[str, Mapping[str, Any]],
    problems: Mapping[str, str],
) -> Entry:
    """The document of a matrix from its scenarios' results (`mltcp-result/1`).

    descriptions: of all scenarios, in order. problems: why a scenario has no result.
    """
    scenarios = {}
    for scenario, description in descriptions.items():
        result = results.get(scenario)
        bound = result["schedules"].get("bound") if result else None
        scenarios[scenario] = {
            "description": description,
            "problem": None if result else problems.get(scenario, "It has not been run."),
            "bound": _times(bound) if bound else None,
            "variants": _variants(result) if result else {},
        }
    return plain({"schema": SCHEMA, "name": name, "scenarios": scenarios})


def _times(entry: Mapping[str, Any]) -> Entry:
    times = entry["iteration_s"] or {}
    return {"mean_s": times.get("mean"), "p99_s": times.get("p99")}


def _variants(result: Mapping[str, Any]) -> dict[str, Entry]:
    variants = {name: _variant(name, entry, result) for name, entry in result["variants"].items()}
    others = [entry for entry in variants.values() if not _is_mltcp(entry)]
    for entry in variants.values():
        for key in ("mean", "p99"):
            entry[f"best_{key}"] = (
                all(entry[f"{key}_s"] <= other[f"{key}_s"] for other in others)
                if _is_mltcp(entry) and others
                else None
            )
    return variants


def _variant(name: str, entry: Mapping[str, Any], result: Mapping[str, Any]) -> Entry:
    base = entry["base"]
    faster = ((result["speedup"].get(name) or {}).get(base) or {}).get("mean")
    over: dict[str, Any] = {}
    if faster and faster["value"]:
        # A speed-up is the base's time over the variant's; its upper limit is the lower one here.
        over = {
            key: 1 / faster[of] if faster[of] else None
            for key, of in (("value", "value"), ("low", "high"), ("high", "low"))
        }
    means = entry["means_s"].values()
    beside = entry["neighbours"].values()
    bulk = {name: n for name, n in entry["neighbours"].items() if n["kind"] == "bulk"}
    ratios = _known(n["ratio_to_base"] for n in bulk.values())
    requests = _known(
        (n["ratio_to_base"] or {}).get("mean") for n in beside if n["kind"] == "requests"
    )
    return {
        "cc": entry["cc"],
        "base": base,
        **_times(entry),
        "spread_s": {"min": min(means), "max": max(means)} if means else None,
        "captured_gain": entry["captured_gain"],
        "over_base": over or None,
        "bulk_bps": {name: n["throughput_bps"]["mean"] for name, n in bulk.items()},
        "bulk_over_base": min(ratios, default=None),
        "requests_over_base": max(requests, default=None),
        "slower": over["value"] > SLOWER if over else None,
        "cpu_busy": entry["cpu_busy"],
    }


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _is_mltcp(entry: Mapping[str, Any]) -> bool:
    return is_mltcp(str(entry["cc"]))


def verdict(entry: Mapping[str, Any]) -> str:
    """Return the verdict on an MLTCP variant in a few words, or a dash."""
    words = []
    if entry["slower"]:
        words.append(f"{entry['over_base']['value'] - 1:.1%} slower than {entry['base']}")
    best = [what for what in ("mean", "p99") if entry[f"best_{what}"]]
    if best:
        words.append("best " + " and ".join(best))
    return ", ".join(words) or NONE


def render_matrix_text(document: Mapping[str, Any]) -> str:
    """Tables of means and of p99s, a line for each MLTCP variant, and the scenarios that failed."""
    parts = []
    for key, title in (("mean", "mean ms"), ("p99", "p99 ms")):
        head, rows = _wide(document, key)
        more = "captured gain" if key == "mean" else "verdict"
        if rows:
            parts.append(table(["scenario", "variant", title, *head, "bound", more], rows))
    more_parts = (_neighbours(document), _conclusion(document))
    parts += [each for each in more_parts if each]
    failed = [
        f"{scenario}: {e['problem']}"
        for scenario, e in document["scenarios"].items()
        if e["problem"]
    ]
    if failed:
        parts.append("\n".join(["No result", *bullets(failed)]))
    return "\n\n".join(parts) + "\n"


def _wide(document: Mapping[str, Any], key: str) -> tuple[list[str], list[list[str] | None]]:
    """Rows of the text tables: a line per MLTCP variant, next to the other variants of its
    scenario."""
    others = _others(document)
    rows: list[list[str] | None] = []
    for scenario, entry, variant, own in _mltcp_variants(document):
        bound = entry["bound"] or {}
        last = interval(own["captured_gain"]) if key == "mean" else verdict(own)
        cells = [_ms(entry["variants"].get(other, {}).get(f"{key}_s")) for other in others]
        rows.append(
            [
                scenario,
                clip(variant),
                _ms(own[f"{key}_s"]),
                *cells,
                _ms(bound.get(f"{key}_s")),
                last,
            ]
        )
    return [clip(other) for other in others], rows


def _others(document: Mapping[str, Any]) -> list[str]:
    """Names of the variants that aren't MLTCP's, of all scenarios."""
    names: dict[str, None] = {}
    for entry in document["scenarios"].values():
        names |= {
            name: None for name, variant in entry["variants"].items() if not _is_mltcp(variant)
        }
    return list(names)


def _mltcp_variants(document: Mapping[str, Any]) -> Iterable[tuple[str, Entry, str, Entry]]:
    for scenario, entry in document["scenarios"].items():
        for variant, own in entry["variants"].items():
            if _is_mltcp(own):
                yield scenario, entry, variant, own


def _ms(seconds: float | None) -> str:
    if seconds is None:
        return NONE
    return f"{seconds * 1e3:.0f}" if seconds >= 0.1 else f"{seconds * 1e3:.1f}"


def _neighbours(document: Mapping[str, Any]) -> str:
    rows: list[list[str] | None] = [
        [
            scenario,
            clip(variant),
            own["base"] or NONE,
            number(own["bulk_over_base"], ".2f"),
            number(own["requests_over_base"], ".2f"),
        ]
        for scenario, _, variant, own in _mltcp_variants(document)
        if own["bulk_over_base"] is not None or own["requests_over_base"] is not None
    ]
    if not rows:
        return ""
    return table(
        ["neighbours of", "variant", "base", "lowest bulk /base", "requests' time /base"], rows
    )


def _conclusion(document: Mapping[str, Any]) -> str:
    """Per MLTCP variant the number of scenarios in which it is the best, and those in which it is
    slower than its base; and the scenarios that a busy host may have limited."""
    of: dict[str, list[tuple[str, Entry]]] = {}
    for scenario, _, variant, own in _mltcp_variants(document):
        of.setdefault(variant, []).append((scenario, own))
    lines = []
    for variant, entries in of.items():
        ranked = [own for _, own in entries if own["best_mean"] is not None]
        compared = [(scenario, own) for scenario, own in entries if own["slower"] is not None]
        slower = [scenario for scenario, own in compared if own["slower"]]
        words = []
        if ranked:
            words.append(
                f"best mean in {sum(own['best_mean'] for own in ranked)} and best p99 in "
                f"{sum(own['best_p99'] for own in ranked)} of {len(ranked)} scenarios"
            )
        if compared:
            words.append(
                f"slower than its base by more than {SLOWER - 1:.0%} in {len(slower)} of "
                f"{len(compared)}" + (f" ({', '.join(slower)})" if slower else "")
            )
        if words and len(entries) > 1:
            lines.append(f"{variant}: {'; '.join(words)}.")
    busy = [scenario for scenario, entry in document["scenarios"].items() if _busy(entry)]
    if busy:
        lines.append(
            f"Doubtful, as the CPUs were more than {BUSY_CPU:.0%} busy in a variant: "
            f"{', '.join(busy)}."
        )
    return "\n".join(textwrap.fill(line, WIDTH) for line in lines)


def _busy(entry: Mapping[str, Any]) -> bool:
    return any((variant["cpu_busy"] or 0.0) > BUSY_CPU for variant in entry["variants"].values())
