# SPDX-License-Identifier: BSD-2-Clause
"""The rule for choosing between two ways; it knows neither torch nor a clock.

Only a trial shows how long the other way takes, and a trial costs something if that way is slower.
So trials are short, alternate between both ways, and get rarer as long as they change nothing.
"""

from __future__ import annotations

from math import inf
from statistics import median

BLOCKS = (False, True, True, False)
"""The order of the ways in a trial (True: the other way), in which a drift affects both alike."""

HOPELESS = 4
"""Multiple of the other way's median, at which a single turn ends the trial."""


class Pause:
    """Length of the pause until the next trial: doubled after each one that was futile."""

    def __init__(self, least: int, most: int) -> None:
        self.length, self._least, self._most = least, least, most

    def tried(self, futile: bool) -> None:
        """Take note of a trial."""
        self.length = min(self._most, 2 * self.length) if futile else self._least


class Trials:
    """Trials of two ways, and the choice between them; ranks that are told the same decide alike.

    ours: whether the next turn uses our way. trying: whether it belongs to a trial. changed:
    whether the last trial changed the choice. rounds: turns of each block; the first of several
    doesn't count, as connections and windows grow in it. sooner: ratio of their median to ours,
    from which ours wins. pause: turns until the next trial.
    """

    def __init__(self, ours: bool, rounds: int, sooner: float, pause: Pause) -> None:
        self.ours, self.pause = ours, pause
        self.trying = self.changed = False
        self._rounds, self._sooner = rounds, sooner
        self._taken, self._turns = ours, 0
        self._took: dict[bool, list[float]] = {True: [], False: []}
        self._before: dict[bool, list[float]] = {True: [], False: []}

    def usual(self, ours: bool) -> float:
        """Return the median of our turns, or of theirs, in this trial or the last one that had any;
        infinite without one."""
        took = self._took[ours] or self._before[ours]
        return median(took) if took else inf

    def begin(self) -> None:
        """Begin a trial."""
        self.trying, self._taken, self._turns = True, self.ours, 0
        self._before = {way: took or self._before[way] for way, took in self._took.items()}
        self._took = {True: [], False: []}

    def note(self, took: float) -> bool:
        """Take note of how long a turn took, in any unit; return True if it ended the trial."""
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
        self.pause.tried(futile=not self.changed)
