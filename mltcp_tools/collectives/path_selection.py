# SPDX-License-Identifier: BSD-2-Clause
"""The rule for leaving a way for another one; it knows neither torch nor a clock.

What the other way takes shows only where it is tried, which costs something where it is slower. So
it is tried by turns with the one that is taken, briefly, and the more seldom the more often nothing
came of it.
"""

from __future__ import annotations

from math import inf
from statistics import median

BLOCKS = (False, True, True, False)
"""The order of turns in a trial, of the other way or the one that is taken, by which a drift is the
same for both."""

HOPELESS = 4
"""Times the other way's median, from which a single turn ends the trial for that way."""


class Pause:
    """The time to leave things as they are: twice as long after each try that was in vain."""

    def __init__(self, least: int, most: int) -> None:
        self.length, self._least, self._most = least, least, most

    def tried(self, in_vain: bool) -> None:
        """A try is over."""
        self.length = min(self._most, 2 * self.length) if in_vain else self._least


class Trials:
    """Trials of two ways, and what is taken after them; ranks that are told the same decide alike.

    ours: whether the next turn goes our way. trying: whether it is of a trial. changed: whether the
    last trial changed what is taken. rounds: turns of each block; of several the first doesn't
    count, for connections and windows grow in it. sooner: their time over ours, at the median, from
    which ours wins. pause: until the next trial, longer after each one that changed nothing.
    """

    def __init__(self, ours: bool, rounds: int, sooner: float, pause: Pause) -> None:
        self.ours, self.pause = ours, pause
        self.trying = self.changed = False
        self._rounds, self._sooner = rounds, sooner
        self._taken, self._turns = ours, 0
        self._took: dict[bool, list[float]] = {True: [], False: []}
        self._before: dict[bool, list[float]] = {True: [], False: []}

    def usual(self, ours: bool) -> float:
        """Median of our turns, or of theirs, in this trial, else in the last one with any; infinite
        without one."""
        took = self._took[ours] or self._before[ours]
        return median(took) if took else inf

    def begin(self) -> None:
        """Begin a trial."""
        self.trying, self._taken, self._turns = True, self.ours, 0
        self._before = {way: took or self._before[way] for way, took in self._took.items()}
        self._took = {True: [], False: []}

    def note(self, took: float) -> bool:
        """A turn of the trial took so long, in any unit; True where it was the last one."""
        is_hopeless = took >= HOPELESS * self.usual(not self.ours)
        if is_hopeless or self._rounds == 1 or self._turns % self._rounds:
            self._took[self.ours].append(took)
        if is_hopeless:
            self._end(not self.ours)
            return True
        self._turns += 1
        blocks, rest = divmod(self._turns, self._rounds)
        if rest:
            return False
        taken, other = self._took[self._taken], self._took[not self._taken]
        has_lost = bool(other) and min(other) > max(taken)
        if blocks < len(BLOCKS) and not has_lost:
            self.ours = self._taken != BLOCKS[blocks]
            return False
        self._end(self.usual(True) * self._sooner <= self.usual(False))
        return True

    def _end(self, ours: bool) -> None:
        self.trying, self.ours = False, ours
        self.changed = ours != self._taken
        self.pause.tried(in_vain=not self.changed)
