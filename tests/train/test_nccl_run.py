# SPDX-License-Identifier: BSD-2-Clause
"""A real run of NCCL over sockets, where a GPU is at hand."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from train.conftest import Report
from train.mltcp import loaded, mltcp_json

from mltcp_tools.live.sources.nccl import NcclSource

RANK = Path(__file__).parent / "nccl_rank.py"
COUNT, ITERATIONS, IDLE_S = 4_000_000, 80, 0.2


def gpus() -> int:
    """Return how many GPUs NCCL could use here."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int()
    if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)):
        return 0
    return count.value


@pytest.mark.skipif(gpus() == 0, reason="NCCL needs a GPU, and there is none here")
def test_two_ranks_over_sockets(nccl_library: Path, tmp_path: Path, report: Report) -> None:
    environment = os.environ | {"NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1"}
    words = (tmp_path / "id", ITERATIONS, COUNT, IDLE_S)
    with loaded(), NcclSource() as source:
        ranks = [
            subprocess.Popen(
                [sys.executable, RANK, nccl_library, str(rank), *map(str, words)],
                stdout=subprocess.PIPE,
                text=True,
                env=environment,
            )
            for rank in range(2)
        ]
        try:
            for rank in ranks:
                assert rank.stdout is not None
                assert rank.stdout.readline() == "ready\n"
                source.watch(rank.pid)
            time.sleep(3)
            done = mltcp_json(
                "attach", *(rank.pid for rank in ranks), "--job", "nccl", "--kind", "nccl-data"
            )
            assert {change["outcome"] for change in done["changes"]} == {"switched"}
            took_s = [float(rank.communicate(timeout=120)[0]) for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()
        assert [rank.returncode for rank in ranks] == [0, 0]
        source.poll()
        found = source.iterations(ranks[0].pid)
    assert found is not None
    assert found.period_s == pytest.approx(took_s[0], rel=0.2)
    report.line(f"NCCL on a GPU: {took_s[0]:.3f} s per iteration, found {found.period_s:.3f} s")
