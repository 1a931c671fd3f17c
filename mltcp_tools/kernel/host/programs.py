"""Programs that parts of this package start in processes of their own: how they begin and end."""

from __future__ import annotations

import subprocess
import sys
from typing import Any


def module_command(module: str, *arguments: str) -> list[str]:
    """Return the command line that runs a module in this very Python.

    Callers write the module's name out: tests/unit/test_layers.py takes it for an import, which may
    not climb, and finds who starts a module otherwise.
    """
    return [sys.executable, "-m", module, *arguments]


def wait_or_kill(process: subprocess.Popen[Any], timeout_s: float) -> int:
    """Return the exit code of a process that was told to end; it is killed after so long."""
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
