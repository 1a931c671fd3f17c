# SPDX-License-Identifier: BSD-2-Clause
"""At F = 1 a variant is its base, bit for bit: every callback is replayed against the base's."""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from netns.connections import bottleneck, connection, send_burst
from netns.own_programs import registered

from mltcp_tools.kernel.backends.base import JobParams
from mltcp_tools.kernel.native.bpf_maps import BpfMap

pytestmark = pytest.mark.bpf

BURST = 400_000
BURSTS = 8


@dataclass
class Count:
    calls: int
    differences: int


def replay(base: str, params: JobParams, pins: Path, folder: Path, pause_s: float = 0.0) -> Count:
    """Send bursts over a lossy bottleneck and count the callbacks that differed.

    No two bursts have the same size, so that nothing is learned; where a stall of the host makes
    two pieces the same after all, what the flow does until it knows better is not compared.
    """
    name = f"replay_{base}"
    with (
        registered(name, params, pins, folder),
        bottleneck() as network,
        connection(network, name) as sender,
    ):
        for number in range(BURSTS):
            send_burst(sender, BURST + number * BURST // 4)
            time.sleep(pause_s)
        assert network.counters().drops > 0, "no losses, so nothing of interest replayed"
    with BpfMap.pinned(pins / "replay_count") as counts:
        value = counts.get(struct.pack("=I", 0))
    assert value is not None
    return Count(*struct.unpack("=QQ", value))


@pytest.mark.parametrize("base", ["reno", "cubic"])
@pytest.mark.parametrize(
    "params",
    [
        pytest.param(JobParams(), id="nothing-known"),
        pytest.param(
            JobParams(burst_bytes=BURST, gap_s=0.05, slope=0, intercept=1), id="gain-of-one"
        ),
        pytest.param(JobParams(burst_bytes=BURST, gap_s=0.05, mechanisms=()), id="no-mechanism"),
    ],
)
def test_at_gain_one_every_callback_is_the_bases(
    base: str, params: JobParams, pins: Path, tmp_path: Path
) -> None:
    count = replay(base, params, pins, tmp_path)
    assert count.calls > 500
    assert count.differences == 0


@pytest.mark.parametrize("base", ["reno", "cubic"])
def test_the_replay_notices_another_gain(base: str, pins: Path, tmp_path: Path) -> None:
    params = JobParams(burst_bytes=BURST * BURSTS, gap_s=0.05, slope=0, intercept=1.5)
    # A flow without a job acts from its first pause.
    assert replay(base, params, pins, tmp_path, pause_s=0.1).differences > 0
