"""What became of the traffic that shares the jobs' link: bulk flows and requests.

throughput
    Bits per second that a bulk flow got across while all jobs of the repetition ran, so that a
    quicker arm isn't credited with an emptier link at its end.
completion time
    Seconds from a request's start until the receiver has confirmed it; those that began while all
    jobs ran.
Jain index
    (Σ x)² / (n Σ x²) of the throughputs of all n bulk flows of a repetition: 1 where all are equal,
    1/n where one has everything (Jain, Chiu and Hawe, DEC-TR-301, 1984).
ratio to base
    The arm's value over that of the same neighbour in the arm's base: the arm with the congestion
    control that it builds on, unless the experiment names another.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from mltcp_tools.analysis.metrics import distribution
from mltcp_tools.runs.run import Run

Entry = dict[str, Any]


def neighbours_of(run: Run) -> dict[str, Entry]:
    """Arm -> {neighbours, jain}, for the arms of a run that has neighbours.

    neighbours: name -> entry, as result.py describes it. jain: {value, per_repetition,
    ratio_to_base}, None with fewer than two bulk flows.
    """
    found: dict[str, Entry] = {
        arm: {"neighbours": _requests(run, arm) | _bulk(run, arm), "jain": _jain(run, arm)}
        for arm in run.arm_names
    }
    for arm, entry in found.items():
        base: Entry = found.get(run.base_of(arm) or "", {"neighbours": {}, "jain": None})
        for name, each in entry["neighbours"].items():
            _compare(each, base["neighbours"].get(name))
        if entry["jain"] and base["jain"]:
            entry["jain"]["ratio_to_base"] = entry["jain"]["value"] / base["jain"]["value"]
    return {arm: entry for arm, entry in found.items() if entry["neighbours"]}


def jain_index(values: np.typing.ArrayLike) -> float | None:
    """Jain's fairness index of some throughputs; None where there are none, or all are 0."""
    array = np.asarray(values, dtype=float)
    squares = float((array**2).sum())
    return float(array.sum()) ** 2 / (array.size * squares) if squares > 0 else None


def _while_all_run(run: Run, arm: str) -> dict[int, float]:
    """Repetition -> seconds from the arm's start until the first job had ended."""
    rows = run.iterations[run.iterations["arm"] == arm]
    ends = rows.groupby(["repetition", "job"])["end_s"].max()
    return {int(str(r)): float(each.min()) for r, each in ends.groupby("repetition")}


def throughputs(run: Run, arm: str) -> pd.DataFrame:
    """Throughput of each bulk flow in each repetition, bit/s: repetition, neighbour, bps."""
    until = _while_all_run(run, arm)
    rows = []
    table = run.bulk[run.bulk["arm"] == arm]
    for (repetition, name), own in table.groupby(["repetition", "neighbour"]):
        if repetition not in until or len(own) < 2:
            continue
        own = own.sort_values("time_s")
        begin, end = float(own["time_s"].iloc[0]), until[int(repetition)]
        if end > begin:
            size = np.interp(end, own["time_s"], own["bytes"])
            bps = 8 * float(size - own["bytes"].iloc[0]) / (end - begin)
            rows.append({"repetition": int(repetition), "neighbour": str(name), "bps": bps})
    return pd.DataFrame(rows, columns=["repetition", "neighbour", "bps"])


def _bulk(run: Run, arm: str) -> dict[str, Entry]:
    return {
        str(name): {
            "kind": "bulk",
            "cc": _cc(run, arm, str(name)),
            "throughput_bps": {
                "mean": float(own.mean()),
                "min": float(own.min()),
                "max": float(own.max()),
            },
            "ratio_to_base": None,
        }
        for name, own in throughputs(run, arm).groupby("neighbour", sort=False)["bps"]
    }


def _requests(run: Run, arm: str) -> dict[str, Entry]:
    table = run.requests[run.requests["arm"] == arm]
    until = table["repetition"].map(_while_all_run(run, arm))
    table = table[table["start_s"] < until]
    found = {}
    for name, own in table.groupby("neighbour", sort=False):
        times = distribution(own["end_s"] - own["start_s"])
        found[str(name)] = {
            "kind": "requests",
            "cc": _cc(run, arm, str(name)),
            "completion_s": times.as_dict() if times else None,
            "ratio_to_base": None,
        }
    return found


def _jain(run: Run, arm: str) -> Entry | None:
    table = throughputs(run, arm)
    if table["neighbour"].nunique() < 2:
        return None
    each = [jain_index(own["bps"]) for _, own in table.groupby("repetition")]
    known = [value for value in each if value is not None]
    if not known:
        return None
    return {"value": float(np.mean(known)), "per_repetition": each, "ratio_to_base": None}


def _compare(entry: Entry, base: Mapping[str, Any] | None) -> None:
    """Fill in `ratio_to_base` where the base has that neighbour, and of the same kind."""
    if not base or base["kind"] != entry["kind"]:
        return
    if entry["kind"] == "bulk":
        own, other = entry["throughput_bps"]["mean"], base["throughput_bps"]["mean"]
        entry["ratio_to_base"] = own / other if other > 0 else None
    elif entry["completion_s"] and base["completion_s"]:
        entry["ratio_to_base"] = {
            key: entry["completion_s"][key] / base["completion_s"][key]
            for key in ("mean", "p50", "p99")
            if base["completion_s"][key] > 0
        }


def _cc(run: Run, arm: str, name: str) -> str | None:
    """The neighbour's congestion control in the arm."""
    cc = run.experiment.neighbours.get(name)
    return run.experiment.arms.get(arm, {}).get("cc") if cc == "arm" else cc
