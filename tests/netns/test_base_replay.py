"""At F = 1 a variant is its base, bit for bit: every callback is replayed against the base's."""

from __future__ import annotations

import contextlib
import shutil
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from netns.connections import bottleneck, connection, send_burst

from mltcp_tools.backends.base import JobParams
from mltcp_tools.backends.params import params_fields
from mltcp_tools.native.bpf_maps import BpfMap, struct_ops_maps
from mltcp_tools.native.bpf_object import BpfObject
from mltcp_tools.native.objects import FLAGS, find_clang, kernel_defines, multiarch_include
from mltcp_tools.native.uapi import pack

pytestmark = pytest.mark.bpf

SSTHRESH_OFFSET = 76
"""Of tcpi_snd_ssthresh in struct tcp_info (linux/tcp.h); tcpi_snd_cwnd follows."""

INFINITE_SSTHRESH = 0x7FFFFFFF
PINS = Path("/sys/fs/bpf/mltcp-replay")
BURST = 400_000
BURSTS = 8


@dataclass
class Count:
    calls: int
    differences: int


def compile_here(name: str, folder: Path) -> Path:
    clang, _ = find_clang()
    target = folder / f"{name}.o"
    source = Path(__file__).parent / f"{name}.bpf.c"
    command = [
        clang,
        *FLAGS,
        *kernel_defines(),
        multiarch_include(),
        "-c",
        str(source),
        "-o",
        str(target),
    ]
    subprocess.run(command, check=True)
    return target


@pytest.fixture
def pins() -> Iterator[Path]:
    shutil.rmtree(PINS, ignore_errors=True)
    PINS.mkdir()
    yield PINS
    shutil.rmtree(PINS)


@contextlib.contextmanager
def registered(name: str, params: JobParams, pins: Path, folder: Path) -> Iterator[None]:
    """The congestion control of that name in the kernel; params: of flows without a job."""
    defaults = pack("mltcp_params", params_fields(params))
    with BpfObject(compile_here(name, folder), pins, {".rodata.defaults": defaults}) as o:
        o.register_struct_ops(name)
        try:
            yield
        finally:
            for found in struct_ops_maps():
                if found.name == name:
                    found.delete(struct.pack("=I", 0))


def replay(base: str, params: JobParams, pins: Path, folder: Path) -> Count:
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
            JobParams(total_bytes=BURST, gap_s=0.05, slope=0, intercept=1), id="gain-of-one"
        ),
        pytest.param(JobParams(total_bytes=BURST, gap_s=0.05, mechanisms=()), id="no-mechanism"),
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
    params = JobParams(total_bytes=BURST * BURSTS, gap_s=10, slope=0, intercept=1.5)
    assert replay(base, params, pins, tmp_path).differences > 0
