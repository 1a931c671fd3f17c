# SPDX-License-Identifier: BSD-2-Clause
"""An ACK leaves the same state of a flow behind in the module, the simulator and user space."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from netns.connections import bottleneck, connection, send_burst
from netns.own_programs import compile_here, pins  # noqa: F401
from support.core_flows import ALL, INCREASE, TRUSTED
from support.recorded_steps import assert_alike

from mltcp_tools.kernel.backends import get_backend
from mltcp_tools.kernel.backends.base import Job, JobParams
from mltcp_tools.kernel.backends.params import params_fields
from mltcp_tools.kernel.native.bpf_maps import RingReader
from mltcp_tools.kernel.native.bpf_object import BpfObject
from mltcp_tools.kernel.native.libbpf import ffi, library

pytestmark = pytest.mark.bpf

ffi.cdef("void *bpf_program__attach(const void *program);")

BURST = 200_000
BURSTS = 6
PROGRAMS = ("acked_begins", "acked_ends")


@pytest.fixture
def recording(pins: Path, tmp_path: Path) -> Iterator[RingReader]:  # noqa: F811
    """Steps of the module's flows."""
    get_backend("kmod").load()
    with BpfObject(compile_here("recorded_module", tmp_path), pins) as recorder:
        links = [library().call.bpf_program__attach(recorder._program(each)) for each in PROGRAMS]
        assert all(links), library().take_log()
        with recorder.map("recorded_steps") as ring:
            reader = RingReader(ring)
            yield reader
            reader.close()
        for link in links:
            library().call.bpf_link__destroy(link)
    get_backend("kmod").unload()


@pytest.mark.parametrize(
    ("mechanisms", "bits"),
    [(("increase", "yield"), ALL), (("increase",), INCREASE | TRUSTED)],
)
def test_every_step_of_the_modules_is_the_one_of_all_hosts(
    mechanisms: tuple[str, ...], bits: int, recording: RingReader
) -> None:
    params = JobParams(burst_bytes=BURST, gap_s=0.02, mechanisms=mechanisms)
    with bottleneck(20_000_000) as network, connection(network, "mltcp") as sender:
        backend = get_backend("kmod")
        backend.set_job(Job(1, "recorded", params))
        backend.tag(sender.fileno(), 1)
        for _ in range(BURSTS):
            time.sleep(0.03)
            send_burst(sender, BURST)
        assert network.counters().drops > 0, "no losses, so nothing of interest recorded"
        records = recording.poll(1)
    assert len(records) > 200
    assert_alike(records, params_fields(params) | {"mechanisms": bits})
