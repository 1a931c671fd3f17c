# SPDX-License-Identifier: BSD-2-Clause
"""Collectives over a network that fails in every way, in virtual time (faults.c)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from support.aggregation.native import with_workers

from mltcp_tools.collectives.library import Chunks, How, Kind, State, Worker

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Outcome:
    """results: of each collective, each rank's array. states: alike. report: of the network.

    chunks: of each rank in each collective; marked only where zeros were left out.
    """

    results: list[list[Array]]
    states: list[list[State]]
    report: dict[str, int]
    chunks: list[Chunks]


def chunk_of(values: int, workers: int, kind: Kind) -> int:
    """Count a packet's elements where it has `values` of 32 bits."""
    worker = Worker(-1, -1, values=values, slots=1, workers=workers)
    try:
        return worker.chunk(kind)
    finally:
        worker.close()


def run(
    collectives: Sequence[Sequence[Array]],
    kind: Kind,
    how: How = How.SUM,
    *,
    sparse: bool = False,
    slots: int = 32,
    in_use: int = 0,
    values: int = 32,
    seed: int = 1,
    **shares: float,
) -> Outcome:
    """All ranks' collectives, one after the other. shares: of packets that suffer each fault.

    in_use: of the slots; 0 for all.
    """
    lib, ffi = with_workers("faults")
    workers = len(collectives[0])
    results = [[np.zeros_like(array) for array in arrays] for arrays in collectives]
    requests, marks = [], []
    for arrays, into in zip(collectives, results, strict=True):
        for array, result in zip(arrays, into, strict=True):
            chunks = Chunks.of(array.size, chunk_of(values, workers, kind))
            marks.append(chunks)
            requests.append(
                {
                    "from": ffi.cast("void *", array.ctypes.data),
                    "to": ffi.cast("void *", result.ctypes.data),
                    "count": array.size,
                    "kind": int(kind),
                    "how": int(how),
                    "slots": in_use,
                    "marks": ffi.from_buffer("uint8_t[]", chunks.marks) if sparse else ffi.NULL,
                }
            )
    described = {"seed": seed, "workers": workers, "slots": slots, "values": values}
    described |= {"limit_ns": 3600 * 10**9} | shares
    report = ffi.new("struct faults_report *")
    states = ffi.new("uint32_t[]", len(requests))
    lib.faults_run(
        ffi.new("struct faults *", described),
        ffi.new("struct worker_request[]", requests),
        len(collectives),
        states,
        report,
    )
    counted = {name: int(getattr(report, name)) for name, _ in ffi.typeof(report).item.fields}
    ended = [State(each) for each in states]
    return Outcome(
        results,
        [ended[i : i + workers] for i in range(0, len(ended), workers)],
        counted,
        marks,
    )
