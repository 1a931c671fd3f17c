# SPDX-License-Identifier: BSD-2-Clause
"""An ACK leaves the same state of a flow behind in eBPF, in the simulator and in user space."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from netns.connections import bottleneck, connection, send_burst
from netns.own_programs import registered
from support.core_flows import INCREASE, YIELD
from support.recorded_steps import assert_alike

from mltcp_tools.kernel.backends.base import JobParams
from mltcp_tools.kernel.backends.params import params_fields
from mltcp_tools.kernel.native.bpf_maps import BpfMap, RingReader

pytestmark = pytest.mark.bpf

BURST = 400_000
BURSTS = 6


@pytest.mark.parametrize(
    ("mechanisms", "bits"),
    [
        (("increase", "yield"), INCREASE | YIELD),
        (("increase",), INCREASE),
    ],
)
def test_every_step_is_the_one_of_all_hosts(
    mechanisms: tuple[str, ...], bits: int, pins: Path, tmp_path: Path
) -> None:
    params = JobParams(burst_bytes=BURST, gap_s=0.02, mechanisms=mechanisms)
    with (
        registered("recorded", params, pins, tmp_path),
        BpfMap.pinned(pins / "recorded_steps") as ring,
        bottleneck() as network,
        connection(network, "recorded") as sender,
    ):
        reader = RingReader(ring)
        for _ in range(BURSTS):
            time.sleep(0.03)
            send_burst(sender, BURST)
        assert network.counters().drops > 0, "no losses, so nothing of interest recorded"
        records = reader.poll(1)
        reader.close()
    assert len(records) > 500
    assert_alike(records, params_fields(params) | {"mechanisms": bits})
