# SPDX-License-Identifier: BSD-2-Clause
"""Every BPF object is taken by the verifier of each kernel, as it stands in bpf/."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from netns.own_programs import pins  # noqa: F401

from mltcp_tools.kernel.native.bpf_object import BpfObject
from mltcp_tools.kernel.native.csources import source_root
from mltcp_tools.kernel.native.objects import build_object

pytestmark = pytest.mark.bpf

OBJECTS = sorted(
    path.name.removesuffix(".bpf.c") for path in (source_root() / "bpf").glob("*.bpf.c")
)


@pytest.mark.parametrize("name", OBJECTS)
def test_the_kernel_takes_the_object(name: str, pins: Path) -> None:  # noqa: F811
    if name == "mltcp_dctcp":
        subprocess.run(["modprobe", "tcp_dctcp"], check=True)
    with BpfObject(build_object(name), pins):
        pass
