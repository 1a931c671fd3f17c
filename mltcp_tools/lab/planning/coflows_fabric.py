# SPDX-License-Identifier: BSD-2-Clause
"""The time that coflows take on a switch under a policy, as an event simulation (fabric/*.c).

The switch is the model that coflow schedulers are compared on: nothing but a flow's ingress and its
egress port limits it, and all ports have one rate.

Offline all coflows are there at the start and the order is made once. Online they arrive one by
one, and the order is made anew whenever one arrives or ends.

- `BSSI`: Sincronia's order.
- `FIFO`: in the order of arrival.
- `fair`: every flow for itself, max-min fair: what TCP would like to do.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from mltcp_tools.base.errors import MltcpError
from mltcp_tools.kernel.native.extension import declarations, extension
from mltcp_tools.lab.planning import filling
from mltcp_tools.lab.planning.coflows_trace import Coflow, Port, Trace
from mltcp_tools.live.priorities.coflows import bssi

Policy = Literal["BSSI", "FIFO", "fair"]
POLICIES: tuple[Policy, ...] = get_args(Policy)

FAIR_GRAIN = 1e-3
"""Relative error of completion times under `fair`."""

_FLOW = np.dtype(
    [("ingress", "u4"), ("egress", "u4"), ("coflow", "u4"), ("left", "f8")], align=True
)
Floats = npt.NDArray[np.float64]
_Indices = npt.NDArray[np.int64]


def completion_times(trace: Trace, policy: Policy, port_bps: float, online: bool = False) -> Floats:
    """Seconds from arrival to end of each coflow, in the order of the trace.

    online: coflows arrive when the trace says; else all are there at the start (offline).
    port_bps: rate of every port, bit/s.
    """
    state = _State(trace, port_bps, online)
    while (now := state.now_s) < np.inf:
        present = state.present()
        until = state.next_arrival()
        if not present.size:
            state.now_s = until
        elif policy == "fair":
            state.fairly(until)
        elif policy == "BSSI":
            state.in_order(present[bssi(state.demands(present))], until)
        else:
            state.in_order(present, until)
        if state.now_s <= now and not state.progressed:
            raise MltcpError(f"the simulation of {policy} makes no progress; report the trace.")
    return np.asarray(state.finished_s - state.arrival_s)


class _State:
    """Coflows on their way: what they still have to send, in seconds of a port's rate."""

    def __init__(self, trace: Trace, port_bps: float, online: bool) -> None:
        self.online = online
        self.ports = trace.ports
        self.coflows: Sequence[Coflow] = trace.coflows
        count = len(trace.coflows)
        self.arrival_s = np.array([c.arrival_s if online else 0.0 for c in trace.coflows])
        self.now_s = float(self.arrival_s.min()) if count else np.inf
        self.flows = _table(trace, 8.0 / port_bps)
        self.unfinished = np.bincount(self.flows["coflow"], minlength=count).astype(np.uint32)
        self.finished_s = np.where(self.unfinished > 0, np.nan, self.arrival_s)
        self.progressed = True

    def present(self) -> _Indices:
        """The coflows that have arrived and not ended, in the order of arrival."""
        there = np.flatnonzero((self.unfinished > 0) & (self.arrival_s <= self.now_s))
        return there[np.argsort(self.arrival_s[there], kind="stable")]

    def next_arrival(self) -> float:
        """Return the arrival of the next coflow, seconds; infinity after the last."""
        return float(np.min(self.arrival_s, where=self.arrival_s > self.now_s, initial=np.inf))

    def demands(self, present: _Indices) -> list[dict[Port, float]]:
        """Return the remaining demand of the coflows on each port, seconds."""
        loads = {side: self.loads(side) for side in ("ingress", "egress")}
        return [
            {
                (side, int(port)): float(load[coflow, port])
                for side, load in loads.items()
                for port in np.flatnonzero(load[coflow])
            }
            for coflow in present
        ]

    def loads(self, side: str) -> Floats:
        """Seconds that each coflow (row) still needs of each port (column) of a side."""
        shape = (len(self.coflows), self.ports)
        place = self.flows["coflow"].astype(np.int64) * self.ports + self.flows[side]
        flat = np.bincount(place, weights=self.flows["left"], minlength=shape[0] * shape[1])
        return np.asarray(flat, dtype=np.float64).reshape(shape)

    def in_order(self, order: _Indices, until_s: float) -> None:
        """Serve coflows, first to last, until a moment, and online until one of them has ended."""
        rank = np.full(len(self.coflows), 0, dtype=np.uint32)
        rank[order] = np.arange(len(order), dtype=np.uint32)
        self._serve(order, rank, until_s)

    def fairly(self, until_s: float) -> None:
        self._serve(self.present(), None, until_s)

    def _serve(self, served: _Indices, rank: npt.NDArray[np.uint32] | None, until_s: float) -> None:
        lib, ffi = _library()
        mask = np.zeros(len(self.coflows), dtype=bool)
        mask[served] = True
        chosen = np.flatnonzero((self.flows["left"] > 0) & mask[self.flows["coflow"]])
        if rank is None:
            keys = [self.flows[name][chosen] for name in ("left", "egress", "ingress")]
            chosen = chosen[np.lexsort(keys)]
        part = np.ascontiguousarray(self.flows[chosen])
        pending = int(self.unfinished.sum())
        common = (
            ffi.cast("uint32_t *", ffi.from_buffer(self.unfinished)),
            ffi.cast("double *", ffi.from_buffer(self.finished_s)),
            self.now_s,
            until_s,
        )
        flows = ffi.cast("struct fabric_flow *", ffi.from_buffer(part))
        if rank is None:
            now = lib.fabric_fairly(flows, part.size, self.ports, *common, FAIR_GRAIN)
        else:
            ranks = ffi.cast("uint32_t *", ffi.from_buffer(rank))
            now = lib.fabric_in_order(
                flows, part.size, self.ports, ranks, rank.size, *common, self.online
            )
        if np.isnan(now):
            raise MltcpError(
                f"there is no memory for a schedule of {part.size} flows; take a shorter trace."
            )
        self.flows[chosen] = part
        self.progressed = int(self.unfinished.sum()) < pending
        idle = not (self.unfinished > 0).any()
        self.now_s = np.inf if idle else float(now)


def _table(trace: Trace, per_byte_s: float) -> npt.NDArray[Any]:
    rows = [
        (ingress, egress, index, size * per_byte_s)
        for index, coflow in enumerate(trace.coflows)
        for ingress, egress, size in coflow.flows()
        if size > 0
    ]
    return np.array(rows, dtype=_FLOW)


@functools.cache
def _library() -> tuple[Any, Any]:
    folder = Path(__file__).resolve().parent / "fabric"
    return extension(
        "fabric", declarations(folder / "fabric.h"), '#include "fabric.h"\n', folder, filling.FOLDER
    )
