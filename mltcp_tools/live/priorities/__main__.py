# SPDX-License-Identifier: BSD-2-Clause
"""The controller of priorities as a program, which ends with the one that started it."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from mltcp_tools.base.errors import run
from mltcp_tools.kernel.host.lifetime import die_with_parent
from mltcp_tools.kernel.host.signals import noted_end
from mltcp_tools.live.priorities.controller import run_controller


def _main() -> None:
    folder, weight, levels = sys.argv[1:]
    die_with_parent()
    run_controller(Path(folder), weight, int(levels), noted_end())


if __name__ == "__main__":
    sys.exit(run(_main, shlex.join(sys.orig_argv)))
