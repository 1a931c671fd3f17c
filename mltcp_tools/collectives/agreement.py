# SPDX-License-Identifier: BSD-2-Clause
"""Ranks agree on what comes next before each use of their Gloo.

A reduction outside Gloo may fail at one rank after another rank has finished it, and that one may
be about to use Gloo for something else. So before each use, every rank tells whether a reduction
failed there, what it is about to do, and with how many values. If a reduction failed at some ranks
only, the others learn of it here, and call again as ranks with a failure. Then all have met, and
tell how far they are. Ranks that are about to do different things meet in the same way.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mltcp_tools.collectives.session import NOT_ALL, SessionError

IDLE = "nothing"
"""The tensor of a rank that has come by itself, having heard that reductions have ended."""

ELSEWHERE = "A reduction failed at another rank."
_LEFT = " left."
DIFFERENT = "Ranks asked for different reductions."


@dataclass(frozen=True)
class Progress:
    """Words of all ranks in their order. done: steps that each has finished. reasons: what failed
    there, empty where nothing did. doing: what each was to reduce."""

    done: list[int]
    reasons: list[str]
    doing: list[str]

    @property
    def first(self) -> int:
        """The fewest steps: those of the ranks for which the others have a sum."""
        return min(self.done)

    @property
    def ahead(self) -> list[int]:
        """The ranks that have finished one step more."""
        return [rank for rank, done in enumerate(self.done) if done > self.first]

    @property
    def reason(self) -> str:
        """Of a rank that failed by itself, rather than as another one did; empty without any."""
        reasons = [each for each in self.reasons if each]
        by_itself = [each for each in reasons if not each.endswith((ELSEWHERE, NOT_ALL, _LEFT))]
        return (by_itself or reasons or [""])[0]

    @property
    def mismatch(self) -> str:
        """A sentence on two ranks that were to reduce different things; empty where all agree."""
        here = [
            rank
            for rank, done in enumerate(self.done)
            if done == self.first and self.doing[rank] != IDLE
        ]
        for rank in here[1:]:
            if self.doing[rank] != self.doing[here[0]]:
                return (
                    f"{DIFFERENT.rstrip('.')}: rank {here[0]} for"
                    f" {self.doing[here[0]]}, rank {rank} for {self.doing[rank]}."
                )
        return ""


def has_left(reason: str) -> bool:
    """Tell whether a rank isn't there any more, so that none can meet it."""
    return reason.endswith(_LEFT)


class Agreement:
    """Meetings of ranks. exchange: told two numbers of this rank, it returns those of all. tell:
    told what this rank says, it returns what all say. Both in the ranks' order."""

    def __init__(
        self,
        exchange: Callable[[int, int], list[tuple[int, int]]],
        tell: Callable[[Any], list[Any]],
    ) -> None:
        self._exchange, self._tell = exchange, tell

    def go_on(self, doing: str = "") -> None:
        """Agree that Gloo may be used, and for what.

        SessionError where a reduction failed at another rank, or another does something else.
        """
        told = self._exchange(0, zlib.crc32(doing.encode()))
        if any(failed for failed, _ in told):
            raise SessionError(ELSEWHERE)
        if len({what for _, what in told}) > 1:
            raise SessionError(DIFFERENT)

    def tell(self, what: Any) -> list[Any]:
        """Return the messages of all ranks. SessionError as for `go_on`."""
        self.go_on()
        return self._tell(what)

    def meet(self, done: int, reason: str, doing: str) -> Progress:
        """Come together after a failure, or learning of one; all ranks do."""
        while not all(failed for failed, _ in self._exchange(1, 0)):
            pass
        told = self._tell([done, reason, doing])
        for rank, each in enumerate(told):
            if not isinstance(each, list) or [type(word) for word in each] != [int, str, str]:
                raise SessionError(
                    f"Rank {rank} sent an invalid message; run the same version of MLTCP on all"
                    " ranks."
                )
        return Progress(*(list(each) for each in zip(*told, strict=True)))
