# SPDX-License-Identifier: BSD-2-Clause
"""Facts of a host, read from its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from mltcp_tools.kernel.host import facts


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
