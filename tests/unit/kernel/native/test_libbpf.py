# SPDX-License-Identifier: BSD-2-Clause
"""libbpf's messages are kept whole, for a verifier says its reason last."""

from __future__ import annotations

from pathlib import Path

from mltcp_tools.kernel.native.libbpf import ffi, library


def test_a_long_message_keeps_its_end(tmp_path: Path) -> None:
    lib = library()
    lib.take_log()
    name = "/".join(["a" * 200] * 30)  # libbpf prints the path of what it can't open
    assert lib.call.bpf_object__open_file(f"{tmp_path}/{name}/end".encode(), ffi.NULL) == ffi.NULL
    log = lib.take_log()
    assert len(log) > len(name)
    assert f"{name}/end" in log
