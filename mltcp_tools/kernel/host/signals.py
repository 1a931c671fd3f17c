# SPDX-License-Identifier: BSD-2-Clause
"""Signals as something that a loop looks at where it can serve it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any


class Signals:
    """While active, these signals are only noted, and make `fileno()` readable.

    So what is being built or taken down is never cut in half, however often Ctrl-C is pressed.
    numbers: SIGINT, SIGTERM and SIGHUP unless others are named. A context manager for the main
    thread.
    """

    def __init__(self, *numbers: signal.Signals) -> None:
        self._numbers = numbers or (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        self._came: list[int] = []
        self._read, self._write = -1, -1
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Signals:
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        for number in self._numbers:
            # Processes started meanwhile inherit what is ignored, not what is handled.
            self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        os.close(self._read)
        os.close(self._write)

    def fileno(self) -> int:
        """Readable from a signal on until it is taken."""
        return self._read

    def take(self) -> list[int]:
        """The signals that came since the last call."""
        try:
            os.read(self._read, 1)
        except BlockingIOError:
            return []
        came, self._came = self._came, []
        return came

    def has_come(self) -> bool:
        """Return whether a signal has come that isn't taken."""
        return bool(self._came)

    def check(self) -> None:
        """Raise KeyboardInterrupt if a signal has come; it isn't taken, so every call does."""
        if self._came:
            raise KeyboardInterrupt

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._came.append(number)
        if len(self._came) == 1:
            os.write(self._write, b"\0")


def noted_end() -> Callable[[], bool]:
    """Have SIGINT and SIGTERM only noted from now on; what is returned says whether one came."""
    came: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _frame: came.append(number))
    return lambda: bool(came)
