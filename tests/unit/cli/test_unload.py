# SPDX-License-Identifier: BSD-2-Clause
"""The testbed's packages are asked for only where a testbed left something on the host."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from mltcp_tools.cli import unload


@pytest.mark.parametrize(
    ("files", "left"),
    [
        (None, False),
        ({}, False),
        ({"backend.change": "", "bpf.users": ""}, False),  # a run that ended well
        ({"bpf.users": "loaded"}, True),
        ({"bpf.users": "", "00beef.lock": ""}, True),
    ],
)
def test_what_testbeds_left_is_known_by_their_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: Mapping[str, str] | None, left: bool
) -> None:
    monkeypatch.setattr(unload, "RUN_DIR", tmp_path)
    if files is not None:
        (tmp_path / "testbed").mkdir()
        for name, text in files.items():
            (tmp_path / "testbed" / name).write_text(text)
    assert unload._left_by_testbeds() == left
