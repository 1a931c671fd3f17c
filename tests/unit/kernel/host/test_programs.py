"""Processes of this package's own programs: how they end."""

from __future__ import annotations

import signal
import subprocess
import sys

from mltcp_tools.kernel.host.programs import wait_or_kill


def test_a_process_that_ends_by_itself_has_its_own_exit_code() -> None:
    process = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    assert wait_or_kill(process, 60.0) == 3


def test_a_process_that_stays_is_killed() -> None:
    process = subprocess.Popen(["sleep", "600"])
    assert wait_or_kill(process, 0.01) == -signal.SIGKILL
