# SPDX-License-Identifier: BSD-2-Clause
"""Processes of this package's own programs: how they begin and end."""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path

from mltcp_tools.kernel.host import programs
from mltcp_tools.kernel.host.programs import wait_or_kill


def test_a_process_that_stays_is_killed() -> None:
    process = subprocess.Popen(["sleep", "600"])
    assert wait_or_kill(process, 0.01) == -signal.SIGKILL


def test_isolated_command_runs_modules_of_its_own_folder(tmp_path: Path) -> None:
    """As the command of the Debian package does, which no other Python can import."""
    folder = tmp_path / "mltcp_tools/kernel/host"
    folder.mkdir(parents=True)
    shutil.copy(programs.__file__, folder)
    (tmp_path / "mltcp_tools/says.py").write_text("import sys\nprint(__name__, sys.argv[1:])\n")
    asked = (
        f"import subprocess, sys; sys.path.insert(0, {str(tmp_path)!r});"
        "from mltcp_tools.kernel.host.programs import module_command;"
        "subprocess.run(module_command('mltcp_tools.says', '--one', 'two'), check=True)"
    )
    command = ["/usr/bin/python3", "-I", "-c", asked]
    done = subprocess.run(command, capture_output=True, text=True, cwd="/")
    assert (done.stdout, done.stderr) == ("__main__ ['--one', 'two']\n", "")
