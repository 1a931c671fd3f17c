# SPDX-License-Identifier: BSD-2-Clause
"""Facts of a host, read from its files."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from mltcp_tools.kernel.host import facts

STRINGS = b"\0IPSTATS_MIB_OUTPKTS\0IPSTATS_MIB_OUTOCTETS\0"
ENUM = struct.pack("=3I4I", 0, 6 << 24 | 2, 4, 1, 9, 1 + 20, 10)
BTF = (
    struct.pack("=HBB5I", 0xEB9F, 1, 0, 24, 0, len(ENUM), len(ENUM), len(STRINGS)) + ENUM + STRINGS
)


@pytest.mark.parametrize(
    ("possible", "mode", "may"),
    [
        ("0", "[none] integrity confidentiality", True),
        ("0-255", "none [integrity] confidentiality", True),
        ("0-255", "none integrity [confidentiality]", False),
        ("0-3,8-11", "[none] integrity confidentiality", False),
        ("1-3", "[none] integrity confidentiality", False),
    ],
)
def test_counters_are_read_only_if_allowed_and_cpus_complete(
    possible: str, mode: str, may: bool, tmp_path: Path
) -> None:
    (tmp_path / "possible").write_text(possible + "\n")
    (tmp_path / "lockdown").write_text(mode + "\n")
    (tmp_path / "btf").write_bytes(BTF)
    files = (tmp_path / name for name in ("lockdown", "possible", "btf"))
    assert facts.counter_of_sent_octets(*files) == (10 if may else 0)


def test_an_enumerator_that_this_kernel_lacks_is_none() -> None:
    assert facts.enumerator(BTF, b"IPSTATS_MIB_NEVER") == 0


@pytest.mark.parametrize(
    ("enforced", "mode", "demands"),
    [
        ("N", "[none] integrity confidentiality", False),
        ("Y", "[none] integrity confidentiality", True),
        ("N", "none [integrity] confidentiality", True),
        (None, None, False),
    ],
)
def test_modules_need_signatures_under_lockdown_or_sig_enforce(
    enforced: str | None, mode: str | None, demands: bool, tmp_path: Path
) -> None:
    files = tmp_path / "lockdown", tmp_path / "sig_enforce"
    for file, text in zip(files, (mode, enforced), strict=True):
        if text is not None:
            file.write_text(text + "\n")
    assert facts.demands_signed_modules(*files) is demands


def test_the_file_system_mounted_last_is_the_one_seen(tmp_path: Path) -> None:
    mountinfo = tmp_path / "mountinfo"
    mountinfo.write_text(
        "35 24 0:30 / /sys/fs/bpf rw shared:9 - bpf bpf rw,mode=700\n"
        "36 24 0:31 / /mnt rw - tmpfs none rw\n"
    )
    assert facts.mounted_at(Path("/sys/fs/bpf"), mountinfo) == "bpf"
    with open(mountinfo, "a") as file:
        file.write("37 35 0:32 / /sys/fs/bpf rw - tmpfs none rw\n")
    assert facts.mounted_at(Path("/sys/fs/bpf"), mountinfo) == "tmpfs"
    assert facts.mounted_at(Path("/sys/fs"), mountinfo) == ""
