"""What a follower is told from outside, and what it tells."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from types import FrameType

_AGAIN_S = 60.0


class Signals:
    """The signals that came, for a loop that waits on `fileno()`. A context manager."""

    def __init__(self, *numbers: signal.Signals) -> None:
        self._numbers = numbers
        self._came: list[int] = []
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def __enter__(self) -> Signals:
        self._before = {number: signal.signal(number, self._note) for number in self._numbers}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._read)
        os.close(self._write)

    def fileno(self) -> int:
        """Readable when a signal has come."""
        return self._read

    def take(self) -> list[int]:
        """The signals that came since the last call."""
        try:
            os.read(self._read, 1024)
        except BlockingIOError:
            return []
        came, self._came = self._came, []
        return came

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._came.append(number)
        os.write(self._write, b"\0")


class Voice:
    """Says what happens, a sentence each, and what may go on happening once a minute at most."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self._until: dict[str, float] = {}

    def warn(self, sentence: str) -> None:
        """Say it unless it was said within the last minute."""
        now = time.monotonic()
        if now >= self._until.get(sentence, 0.0):
            self._until = {each: until for each, until in self._until.items() if until > now}
            self._until[sentence] = now + _AGAIN_S
            self.say(sentence)
