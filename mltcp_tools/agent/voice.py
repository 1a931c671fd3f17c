"""What a follower tells people."""

from __future__ import annotations

import time
from collections.abc import Callable

_AGAIN_S = 60.0


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
