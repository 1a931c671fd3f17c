# SPDX-License-Identifier: BSD-2-Clause
"""Leases: a user that can't be read isn't one that is gone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mltcp_tools.kernel.host.leases import leased, leases

CODE = """
import sys
from pathlib import Path
from mltcp_tools.kernel.host.leases import leases
print([each.what for each in leases("bpf", Path(sys.argv[1]))])
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with leased("mltcp agent", "bpf", tmp_path):
        yield tmp_path


def read(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", CODE, str(folder)]
    return subprocess.run(command, capture_output=True, text=True)


def test_a_living_user_is_listed_to_others(folder: Path) -> None:
    assert read(folder).stdout == "['mltcp agent']\n"


def test_a_lease_without_its_lock_is_removed(folder: Path) -> None:
    (folder / "1-0.json").write_text('{"pid": 1, "what": "mltcp agent", "backend": "bpf"}')
    assert leases("bpf", folder) == []
    assert not (folder / "1-0.json").exists()


def test_an_unreadable_lease_is_unknown(folder: Path) -> None:
    (mine,) = folder.glob("*.json")
    unreadable = f"""
import os, resource
from mltcp_tools.kernel.host import leases as module
before = os.open
def without_descriptors(*given):
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
    return before(*given)
module.os.open = without_descriptors
{CODE}"""
    run = subprocess.run(
        [sys.executable, "-c", unreadable, str(folder)], capture_output=True, text=True
    )
    assert "UnknownError" in run.stderr
    assert str(mine) in run.stderr
    assert run.stdout == ""
