"""Ctrl-C, SIGTERM and SIGHUP as a request that is looked at where it can be served."""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import Any


class Interrupts:
    """While active, these signals only set a flag and make `fileno()` readable.

    `check` raises KeyboardInterrupt once one has come. So building and taking down are never cut
    in half, however often Ctrl-C is pressed. A context manager for the main thread.
    """

    SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self._came = False
        self._read, self._write = -1, -1
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupts:
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        for number in self.SIGNALS:
            # Emulators inherit what is ignored, not what is handled: they see the default.
            self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        os.close(self._read)
        os.close(self._write)

    def fileno(self) -> int:
        """Readable, for good, once a signal has come."""
        return self._read

    def check(self) -> None:
        """Raise KeyboardInterrupt if a signal has come."""
        if self._came:
            raise KeyboardInterrupt

    def _note(self, number: int, frame: FrameType | None) -> None:
        if not self._came:
            self._came = True
            os.write(self._write, b"\0")
