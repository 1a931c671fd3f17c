# SPDX-License-Identifier: BSD-2-Clause
"""A worker whose aggregator knows the secret and lies: it writes nothing but its result."""

from __future__ import annotations

import numpy as np
import pytest
from support.aggregation.native import with_workers

from mltcp_tools.collectives.library import How, Kind

COUNT, ROOM = 1003, 4096


@pytest.mark.parametrize("leaves_zeros_out", [False, True])
@pytest.mark.parametrize("kind", [Kind.FLOAT32, Kind.BFLOAT16, Kind.INT32])
def test_answers_that_cannot_be_write_nowhere_else(kind: Kind, leaves_zeros_out: bool) -> None:
    lib, ffi = with_workers("hostile")
    source = np.ones(COUNT * kind.bytes, dtype=np.uint8)
    memory = np.full(ROOM + COUNT * kind.bytes + ROOM, 0xA5, dtype=np.uint8)
    marks = np.zeros(64, dtype=np.uint8)
    request = {
        "from": ffi.cast("void *", source.ctypes.data),
        "to": ffi.cast("void *", memory.ctypes.data + ROOM),
        "count": COUNT,
        "kind": int(kind),
        "how": int(How.SUM),
        "marks": ffi.cast("uint8_t *", marks.ctypes.data) if leaves_zeros_out else ffi.NULL,
    }
    report = ffi.new("struct hostile_report *")
    lib.hostile_run(7, 200_000, ffi.new("struct worker_request *", request), report)
    assert (memory[:ROOM] == 0xA5).all()
    assert (memory[-ROOM:] == 0xA5).all()
    assert not marks[-(-COUNT // 32) :].any()
    assert report.answers == 200_000
    assert report.broken > 1000  # lies are seen
    assert report.done + report.broken < report.answers
