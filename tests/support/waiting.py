"""Waiting for what comes, however busy the machine is."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from typing import Any, TypeVar

PATIENCE_S = 120.0

T = TypeVar("T")


def wait_for(
    ask: Callable[[], T],
    what: str,
    seconds: float = PATIENCE_S,
    beside: subprocess.Popen[Any] | None = None,
) -> T:
    """The first answer that is true, asked for again and again; the test fails without one.

    beside: a process that must live as long.
    """
    deadline = time.monotonic() + seconds
    while not (answer := ask()):
        assert beside is None or beside.poll() is None, f"the process ended before: {what}"
        assert time.monotonic() < deadline, f"waited {seconds} s in vain: {what}"
        time.sleep(0.01)
    return answer
