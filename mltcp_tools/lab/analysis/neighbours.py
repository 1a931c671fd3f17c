# SPDX-License-Identifier: BSD-2-Clause
"""The results of the traffic that shares the jobs' link: bulk flows and requests.

throughput
    Bits per second that a bulk flow delivered while all jobs of the repetition ran: at the end of a
    fast variant the link is emptier, which doesn't count.
completion time
    Seconds from a request's start until the receiver has confirmed it, of the requests that began
    while all jobs ran.
ratio to base
    The variant's value over that of the same neighbour in the variant's base: the variant with the
    congestion control that it builds on, unless the experiment names another.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from mltcp_tools.lab.analysis.metrics import distribution
from mltcp_tools.lab.analysis.result import BulkResult, RequestsResult, Throughput
from mltcp_tools.lab.runs.run import Run

Neighbours = dict[str, BulkResult | RequestsResult]


def neighbours_of(run: Run) -> dict[str, Neighbours]:
    """Variant -> its neighbours by name, for the variants of a run that has neighbours."""
    found = {
        variant: _requests(run, variant) | _bulk(run, variant) for variant in run.variant_names
    }
    for variant, neighbours in found.items():
        base = found.get(run.base_of(variant) or "", {})
        for name, each in neighbours.items():
            _compare(each, base.get(name))
    return {variant: neighbours for variant, neighbours in found.items() if neighbours}


def _while_all_run(run: Run, variant: str) -> dict[int, float]:
    """Repetition -> seconds from the variant's start until the first job had ended."""
    rows = run.iterations[run.iterations["variant"] == variant]
    ends = rows.groupby(["repetition", "job"])["end_s"].max()
    return {int(str(r)): float(each.min()) for r, each in ends.groupby("repetition")}


def throughputs(run: Run, variant: str) -> pd.DataFrame:
    """Throughput of each bulk flow in each repetition, bit/s: repetition, neighbour, bps."""
    until = _while_all_run(run, variant)
    rows = []
    table = run.bulk[run.bulk["variant"] == variant]
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


def _bulk(run: Run, variant: str) -> Neighbours:
    return {
        str(name): BulkResult(
            cc=_cc(run, variant, str(name)),
            throughput_bps=Throughput(
                mean=float(own.mean()), min=float(own.min()), max=float(own.max())
            ),
        )
        for name, own in throughputs(run, variant).groupby("neighbour", sort=False)["bps"]
    }


def _requests(run: Run, variant: str) -> Neighbours:
    table = run.requests[run.requests["variant"] == variant]
    until = table["repetition"].map(_while_all_run(run, variant))
    table = table[table["start_s"] < until]
    return {
        str(name): RequestsResult(
            cc=_cc(run, variant, str(name)),
            completion_s=distribution(own["end_s"] - own["start_s"]),
        )
        for name, own in table.groupby("neighbour", sort=False)
    }


def _compare(entry: BulkResult | RequestsResult, base: BulkResult | RequestsResult | None) -> None:
    """Fill in `ratio_to_base` where the base has that neighbour, and of the same kind."""
    match entry, base:
        case BulkResult(), BulkResult():
            other = base.throughput_bps.mean
            entry.ratio_to_base = entry.throughput_bps.mean / other if other > 0 else None
        case RequestsResult(completion_s=own), RequestsResult(completion_s=others):
            if not (own and others):
                return
            entry.ratio_to_base = {
                key: getattr(own, key) / getattr(others, key)
                for key in ("mean", "p50", "p99")
                if getattr(others, key) > 0
            }


def _cc(run: Run, variant: str, name: str) -> str:
    """The neighbour's congestion control in the variant."""
    return run.experiment.neighbours[name].cc_in(run.experiment.variants[variant].cc)
