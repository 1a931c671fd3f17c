# SPDX-License-Identifier: BSD-2-Clause
"""Programs that parts of this package start in processes of their own: how they begin and end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).resolve().parents[3]
"""The folder that mltcp_tools is in."""


def module_command(module: str, *arguments: str) -> list[str]:
    """Return the command line that runs a module in this very Python.

    Callers write the module's name out: tests/unit/test_layers.py takes it for an import, which may
    not climb, and finds who starts a module otherwise.
    """
    if not sys.flags.isolated:
        return [sys.executable, "-m", module, *arguments]
    # The command of a .deb or .rpm is isolated, and no other Python knows the package's folder.
    program = (
        f"import runpy, sys; sys.path.insert(0, {str(_FOLDER)!r});"
        f" runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
    )
    return [sys.executable, "-I", "-c", program, *arguments]


def wait_or_kill(process: subprocess.Popen[Any], timeout_s: float) -> int:
    """Return the exit code of a process that was told to end; it is killed after so long."""
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
