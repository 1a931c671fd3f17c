"""The arms of a matrix over all of its mixes: which parameters do well wherever they are tried."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mltcp_tools.cells import clip, number, table
from mltcp_tools.kernel.variants import is_mltcp

Entry = dict[str, Any]


def means_over_mixes(mixes: Mapping[str, Mapping[str, Any]]) -> dict[str, Entry]:
    """Per MLTCP arm that all mixes with a bound have, from the entries of `mltcp-matrix/1`:

    mean_to_bound, p99_to_bound   its mean and p99 over the bound's, mean over the mixes
    gain                          captured gain, mean over the mixes that have one, or null
    lowest_gain                   {value, mix}: the lowest of these, or null

    Without an entry where there are fewer than two such mixes, or no other arm to compare with.
    """
    with_bound = {mix: e for mix, e in mixes.items() if e["bound"] and e["bound"]["mean_s"]}
    arms: dict[str, Entry] = {}
    for name in dict.fromkeys(arm for each in with_bound.values() for arm in each["arms"]):
        own = {mix: e["arms"][name] for mix, e in with_bound.items() if name in e["arms"]}
        if len(own) < max(2, len(with_bound)) or not _is_mltcp(own):
            continue
        gains = {m: e["captured_gain"]["value"] for m, e in own.items() if e["captured_gain"]}
        lowest = min(gains, key=lambda mix: gains[mix]) if gains else None
        arms[name] = {
            "mean_to_bound": _to_bound(own, with_bound, "mean_s"),
            "p99_to_bound": _to_bound(own, with_bound, "p99_s"),
            "gain": float(np.mean(list(gains.values()))) if gains else None,
            "lowest_gain": {"value": gains[lowest], "mix": lowest} if lowest else None,
        }
    return arms if len(arms) > 1 else {}


def _is_mltcp(own: Mapping[str, Mapping[str, Any]]) -> bool:
    return all(is_mltcp(str(entry["cc"])) for entry in own.values())


def _to_bound(
    own: Mapping[str, Mapping[str, Any]], mixes: Mapping[str, Mapping[str, Any]], key: str
) -> float:
    return float(np.mean([entry[key] / mixes[mix]["bound"][key] for mix, entry in own.items()]))


def means_table(document: Mapping[str, Any]) -> str:
    """A line for each arm that all mixes have, the best first; "" where there are none."""
    arms = document["over_mixes"]
    rows: list[list[str] | None] = []
    for name, entry in sorted(arms.items(), key=lambda item: float(item[1]["mean_to_bound"])):
        lowest = entry["lowest_gain"] or {"value": None, "mix": ""}
        rows.append(
            [
                clip(name, 40),
                number(entry["mean_to_bound"], ".3f"),
                number(entry["p99_to_bound"], ".2f"),
                number(entry["gain"], ".2f"),
                number(lowest["value"], ".2f"),
                clip(lowest["mix"]),
            ]
        )
    if not rows:
        return ""
    head = ["over all mixes", "mean /bound", "p99 /bound", "captured gain", "lowest", "in"]
    return table(head, rows)


def as_result(
    document: Mapping[str, Any], described: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Captured gains over all mixes in the form of a result (`mltcp-result/1`), for a heat map.

    described: the arms' parameters by name.
    """
    arms = {
        name: {"captured_gain": None if entry["gain"] is None else {"value": entry["gain"]}}
        for name, entry in document["over_mixes"].items()
    }
    return {"experiment": {"arms": {n: described[n] for n in arms if n in described}}, "arms": arms}
