# SPDX-License-Identifier: BSD-2-Clause
"""A kernel that skips congestion controls in BPF at times, such as Ubuntu 22.04's: eBPF is refused,
by the doctor too, and the module isn't."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mltcp_tools.base.errors import HostError
from mltcp_tools.doctor import diagnose
from mltcp_tools.kernel.backends import get_backend
from mltcp_tools.kernel.native.requirements import skips_struct_ops

pytestmark = pytest.mark.full


def test_only_ebpf_is_refused(supports: Callable[..., None]) -> None:
    if not skips_struct_ops(Path("/sys/kernel/btf/vmlinux").read_text(errors="replace")):
        pytest.skip("this kernel runs each of them")
    with pytest.raises(HostError, match="skips congestion controls in BPF"):
        get_backend("bpf").load()
    assert get_backend("bpf").status().loaded == ()
    found = diagnose()
    assert "struct_ops" in found.lacking("bpf")
    assert found.lacking("kmod") == []
    supports(ebpf="refused")
