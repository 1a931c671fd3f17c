# SPDX-License-Identifier: BSD-2-Clause
"""Work of a sweep during which a worker is killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from mltcp_tools.clusters.outcome import Outcome
from mltcp_tools.clusters.sweep import Task, perform


def killed_once(task: Task) -> Outcome:
    """As perform, but the first worker that gets a run of `elastic` is killed.

    The environment's KILLED_FLAG names a file that is there once it was.
    """
    flag = Path(os.environ["KILLED_FLAG"])
    if task.policy == "elastic" and not flag.exists():
        flag.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return perform(task)
