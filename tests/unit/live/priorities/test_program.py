# SPDX-License-Identifier: BSD-2-Clause
"""The controller as the agent and the testbed start it."""

from __future__ import annotations

import subprocess

from mltcp_tools.base.errors import UsageError
from mltcp_tools.kernel.host.programs import module_command


def test_a_folder_without_maps_is_told_in_a_sentence() -> None:
    command = module_command("mltcp_tools.live.priorities", "/nowhere", "none", "8")
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == UsageError.exit_code
    assert done.stderr.startswith("mltcp: error: /nowhere has no maps of priorities")
