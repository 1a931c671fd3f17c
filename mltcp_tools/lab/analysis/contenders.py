"""The winner, its lead and its needs: the arms of a matrix by what they need of a network.

An arm wins a mix if its mean iteration is the shortest, or within TIE of the shortest while it
needs less. What it needs follows from its congestion control and its treatments.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from mltcp_tools.cells import NONE, markdown, number
from mltcp_tools.lab.experiments.treatments import MARKS, NEEDS, SENDERS, TREATMENTS

Entry = Mapping[str, Any]

TIE = 0.005
"""Arms whose mean iterations differ by no more than this share are as good as each other."""


def needs_of(arm: Entry) -> str:
    """Return the need of an arm, given as in an experiment's document; one of NEEDS."""
    said = (arm.get("treatment") or {}).items()
    needed = [TREATMENTS[name].needs(settings or {}) for name, settings in said]
    own = MARKS if str(arm["cc"]).endswith("dctcp") else SENDERS
    return max((own, *needed), key=NEEDS.index)


def settled_gain(name: str, result: Entry) -> float | None:
    """An arm's captured gain of the settled iterations (`mltcp-result/1`); None where it has none
    of all iterations."""
    arms = result["arms"]
    if not arms[name]["captured_gain"]:
        return None
    compared = (arms[name], arms.get(result["baseline"]), result["schedules"].get("bound"))
    means = [each and each["settled_mean_s"] for each in compared]
    if not all(means):
        return None
    own, other, best = means
    return float((other - own) / (other - best)) if other > best else None


def winner(arms: Mapping[str, Entry]) -> str:
    """The arm of a mix (`mltcp-matrix/1`) that wins; its arms all have a mean."""
    shortest = min(each["mean_s"] for each in arms.values())
    best = [name for name, each in arms.items() if each["mean_s"] <= shortest * (1 + TIE)]
    return min(best, key=lambda name: (NEEDS.index(arms[name]["needs"]), arms[name]["mean_s"]))


def contenders_table(document: Entry, reference: str = "mltcp") -> str:
    """A row for each mix (`mltcp-matrix/1`): who wins, how much less time it takes than the arm
    `reference`, what it needs, and the best arm of each need with its captured gain, whole and
    settled. "" where all arms need the same.
    """
    mixes = _measured(document)
    needed = {each["needs"] for arms in mixes.values() for each in arms.values()}
    used = [need for need in NEEDS if need in needed]
    if len(used) < 2:
        return ""
    lines = [["", "wins", f"less than {reference}", "needs", *used]]
    for mix, arms in mixes.items():
        first, other = winner(arms), arms.get(reference)
        less = NONE
        if other:
            less = f"{100 * (1 - arms[first]['mean_s'] / other['mean_s']):.1f} %"
        cells = [_best(arms, need) for need in used]
        lines.append([f"`{mix}`", first, less, arms[first]["needs"], *cells])
    return markdown(lines)


def wins(document: Entry) -> str:
    """A sentence: how many mixes each need wins."""
    won = [arms[winner(arms)]["needs"] for arms in _measured(document).values()]
    counts = [f"by {need}: {won.count(need)}" for need in NEEDS if need in won]
    return f"Situations won, of {len(won)}: {', '.join(counts)}."


def queues_table(document: Entry, reference: str = "reno") -> str:
    """A row for each arm (`mltcp-matrix/1`): how long its queues were over those of `reference`,
    mean and 99th percentile while links were busy, and its mean iteration over that arm's: the
    median of the mixes where queues only drop, and the lowest and highest. "" where queues weren't
    seen.
    """
    ratios: dict[str, list[tuple[float, float, float]]] = {}
    for arms in _measured(document).values():
        other = arms.get(reference)
        if not other or not other.get("queue") or other["marks"]:
            continue
        for name, each in arms.items():
            if name != reference and each.get("queue"):
                queue, queued = each["queue"], other["queue"]
                ratios.setdefault(name, []).append(
                    (
                        queue["mean_bytes"] / queued["mean_bytes"],
                        queue["p99_bytes"] / queued["p99_bytes"],
                        each["mean_s"] / other["mean_s"],
                    )
                )
    if not ratios:
        return ""
    lines = [["", "mixes", "mean queue", "p99 queue", "mean iteration"]]
    for name, found in ratios.items():
        cells = [
            f"{statistics.median(column):.2f} ({min(column):.2f} to {max(column):.2f})"
            for column in zip(*found, strict=True)
        ]
        lines.append([name, str(len(found)), *cells])
    return markdown(lines)


def _measured(document: Entry) -> dict[str, dict[str, Entry]]:
    """The arms with a mean of the mixes that have any; documents of before `needs` have none."""
    found = {
        mix: {n: each for n, each in entry["arms"].items() if each["mean_s"] and "needs" in each}
        for mix, entry in document["mixes"].items()
    }
    return {mix: arms for mix, arms in found.items() if arms}


def _best(arms: Mapping[str, Entry], need: str) -> str:
    own = {name: each for name, each in arms.items() if each["needs"] == need}
    if not own:
        return NONE
    best = min(own, key=lambda name: float(own[name]["mean_s"]))
    gain = own[best]["captured_gain"]
    whole, settled = number(gain and gain["value"], ".2f"), number(own[best]["settled_gain"], ".2f")
    return f"{best} {whole} / {settled}"
