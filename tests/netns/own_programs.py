# SPDX-License-Identifier: BSD-2-Clause
"""Congestion controls that tests compile and register themselves: NAME.bpf.c of this folder."""

from __future__ import annotations

import contextlib
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from mltcp_tools.kernel.backends.base import JobParams
from mltcp_tools.kernel.backends.params import params_fields
from mltcp_tools.kernel.native.bpf_maps import struct_ops_maps
from mltcp_tools.kernel.native.bpf_object import BpfObject
from mltcp_tools.kernel.native.objects import FLAGS, find_clang, kernel_defines, multiarch_include
from mltcp_tools.kernel.native.uapi import pack

PINS = Path("/sys/fs/bpf/mltcp-replay")


def compile_here(
    name: str, folder: Path, *defines: str, sources: Path = Path(__file__).parent
) -> Path:
    """Compile NAME.bpf.c into the folder."""
    clang, _ = find_clang()
    target = folder / f"{name}.o"
    source = sources / f"{name}.bpf.c"
    command = [
        clang,
        *FLAGS,
        *kernel_defines(),
        *defines,
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
