# SPDX-License-Identifier: BSD-2-Clause
"""The messages of a follower to people."""

from __future__ import annotations

import time
from collections.abc import Callable

_AGAIN_S = 60.0
_OFTEN = 6
"""Sentences on one thing within a minute, after which it is said no more for a while."""


class Notices:
    """Says what happens, a sentence each, and what may go on happening once a minute at most."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self._until: dict[str, float] = {}
        self._said: dict[str, list[float]] = {}

    def tell(self, thing: str, sentence: str, enough: str) -> None:
        """Say what happens to a thing, unless that happens often: then `enough` says so, once.

        It is said again when it was quiet for a minute.
        """
        now = time.monotonic()
        since = now - _AGAIN_S
        self._said = {each: when for each, when in self._said.items() if when[-1] > since}
        said = [when for when in self._said.get(thing, []) if when > since]
        self._said[thing] = [*said, now][-_OFTEN:]
        if len(said) < _OFTEN - 1:
            self.say(sentence)
        elif len(said) == _OFTEN - 1:
            self.say(enough)

    def warn(self, sentence: str) -> None:
        """Say it unless it was said within the last minute."""
        now = time.monotonic()
        if now >= self._until.get(sentence, 0.0):
            self._until = {each: until for each, until in self._until.items() if until > now}
            self._until[sentence] = now + _AGAIN_S
            self.say(sentence)
