# SPDX-License-Identifier: BSD-2-Clause
"""Waiting for what comes, however busy the machine is."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from typing import Any, TypeVar

PATIENCE_S = 600.0 if "MLTCP_GUEST" in os.environ else 120.0
"""An emulated CPU beside others is twenty times slower: an agent starts in minutes there."""

T = TypeVar("T")


def wait_for(
    ask: Callable[[], T],
    what: str | Callable[[], str],
    seconds: float = PATIENCE_S,
    beside: subprocess.Popen[Any] | None = None,
) -> T:
    """The first answer that is true, asked for again and again; the test fails without one.

    what: the thing waited for; asked for only then, where it is a function. beside: a process that
    must live as long.
    """
    deadline = time.monotonic() + seconds
    while not (answer := ask()):
        ended = beside is not None and beside.poll() is not None
        if ended or time.monotonic() >= deadline:
            told = what if isinstance(what, str) else what()
            why = "the process ended before" if ended else f"waited {seconds} s in vain"
            raise AssertionError(f"{why}: {told}")
        time.sleep(0.01)
    return answer
