# SPDX-License-Identifier: BSD-2-Clause
"""A job beside one reno flow on its first worker's uplink, in virtual time (beside.c)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from support.aggregation.native import with_workers

from mltcp_tools.collectives.library import How, Kind


@dataclass(frozen=True)
class Shares:
    """The rates at which the uplink carried each, bit/s; and how often each backed off."""

    reno: float
    worker: float
    reno_cuts: int
    worker_cuts: int
    collectives: int


def share(
    *,
    rate: float = 100e6,
    delay_s: float = 100e-6,
    jitter_s: float = 100e-6,
    queue: int = 100_000,
    wake_s: float = 0.0,
    seconds: float = 40.0,
    skip: float = 5.0,
    workers: int = 3,
    count: int = 2_500_000,
    slots: int = 256,
    values: int = 352,
    reno: bool = True,
    seed: int = 1,
) -> Shares:
    """The job repeats a sum of `count` float32; wake_s: a worker looks at its socket so often."""
    lib, ffi = with_workers("beside")
    array = np.ones(count, dtype=np.float32)
    results = [np.empty_like(array) for _ in range(workers)]
    requests = [
        {
            "from": ffi.cast("void *", array.ctypes.data),
            "to": ffi.cast("void *", result.ctypes.data),
            "count": count,
            "kind": int(Kind.FLOAT32),
            "how": int(How.SUM),
            "marks": ffi.NULL,
        }
        for result in results
    ]
    described = {
        "seed": seed,
        "workers": workers,
        "slots": slots,
        "values": values,
        "rate": rate,
        "delay_ns": int(delay_s * 1e9),
        "jitter_ns": int(jitter_s * 1e9),
        "queue": queue,
        "wake_ns": int(wake_s * 1e9),
        "seconds_ns": int((seconds + skip) * 1e9),
        "from_ns": int(skip * 1e9),
        "reno": reno,
    }
    report = ffi.new("struct beside_report *")
    lib.beside_run(
        ffi.new("struct beside *", described),
        ffi.new("struct worker_request[]", requests),
        report,
    )
    return Shares(
        report.reno_bytes * 8 / seconds,
        report.worker_bytes * 8 / seconds,
        int(report.reno_cuts),
        int(report.worker_cuts),
        int(report.collectives),
    )
