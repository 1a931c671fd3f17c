# SPDX-License-Identifier: BSD-2-Clause
"""The texts of `mltcp plan coflows`."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from mltcp_tools.base.cells import WIDTH, table
from mltcp_tools.base.units import format_rate, format_seconds
from mltcp_tools.lab.planning.coflows_fabric import Floats, Policy, completion_times
from mltcp_tools.lab.planning.coflows_trace import Trace
from mltcp_tools.live.priorities.coflows import bssi


def plan_coflows(
    trace: Trace, policies: Sequence[Policy], port_bps: float, online: bool
) -> dict[str, Any]:
    """A document (`mltcp-coflows/1`): the order, first to last, and completion times in seconds.

    A coflow's completion time counts from its arrival. slowdown: how many times longer than under
    BSSI, where that is among the policies. The order is the offline one, whatever `online` says.
    """
    order = bssi([coflow.demand for coflow in trace.coflows])
    times = {each: completion_times(trace, each, port_bps, online) for each in policies}
    return {
        "schema": "mltcp-coflows/1",
        "ports": trace.ports,
        "port_bps": port_bps,
        "online": online,
        "order": [trace.coflows[index].name for index in order],
        "mean_cct": {policy: _mean(each) for policy, each in times.items()},
        "p99_cct": {
            policy: float(np.percentile(each, 99)) if each.size else None
            for policy, each in times.items()
        },
        "slowdown": {
            policy: _slowdown(each, times["BSSI"])
            for policy, each in times.items()
            if "BSSI" in times
        },
    }


def _mean(times_s: Floats) -> float | None:
    return float(times_s.mean()) if times_s.size else None


def _slowdown(times_s: Floats, best_s: Floats) -> dict[str, float | None]:
    """Mean and 99th percentile of the ratio of completion times, coflow by coflow."""
    ratio = times_s[best_s > 0] / best_s[best_s > 0]
    if not ratio.size:
        return {"mean": None, "p99": None}
    return {"mean": float(ratio.mean()), "p99": float(np.percentile(ratio, 99))}


def render_coflows(document: dict[str, Any]) -> str:
    """The order, and a line per policy."""
    order = [str(name) for name in document["order"]]
    shown = ", ".join(order[:20]) + (f", … ({len(order)} in all)" if len(order) > 20 else "")
    arrivals = "as they arrive" if document["online"] else "all there at the start"
    rows = [
        [
            policy,
            _seconds(mean),
            _seconds(document["p99_cct"][policy]),
            *(_times(document["slowdown"].get(policy, {}).get(part)) for part in ("mean", "p99")),
        ]
        for policy, mean in document["mean_cct"].items()
    ]
    head = ("policy", "mean", "p99", "over BSSI", "p99 over BSSI")
    return (
        textwrap.fill(f"order, first to last: {shown}", WIDTH)
        + f"\n\nCompletion times on {document['ports']} ports of"
        f" {format_rate(document['port_bps'])}, coflows {arrivals}:\n\n"
        + table(head, rows)
        + "\n\n"
        + textwrap.fill(
            "over BSSI: how many times longer a coflow takes than under BSSI, mean and 99th"
            " percentile over coflows.",
            WIDTH,
        )
        + "\n"
    )


def _seconds(value: float | None) -> str:
    return "-" if value is None else format_seconds(value)


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
