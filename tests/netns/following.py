# SPDX-License-Identifier: BSD-2-Clause
"""Rules for the processes of a test, and what the commands show of these."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from mltcp_tools.cli.main import main

DEFAULT = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
BURST = 200_000


@pytest.fixture
def mark() -> str:
    """A mark that tells this test's processes from all others."""
    return f"mark-{uuid.uuid4().hex}"


def rules(mark: str, job: str | None = "trained", more: str = "", **top: str) -> str:
    """A configuration with one rule for the processes with this mark."""
    named = "" if job is None else f"job: {job}, "
    head = "".join(f"{name}: {value}\n" for name, value in top.items())
    return f"{head}rules:\n  - {{{named}command: {mark}, kinds: all{more}}}\n"


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return what `mltcp` prints."""
    capsys.readouterr()
    assert main(arguments) == 0
    return capsys.readouterr().out
