# SPDX-License-Identifier: BSD-2-Clause
"""Choose the ring or trees, and when to plan anew, by the time that reductions take.

Another job's bursts make a link look slower for a while, as does a link that has become slower. The
cheapest way to tell is to try: where reductions take longer than before (or, along trees, less
long), they go both ways by turns (trial.py), a look each. To measure and plan costs more, so it has
a small share of the time, and reductions must have been slow for a while, all of them: those
between two bursts of another job are as fast as ever.
"""

from __future__ import annotations

from mltcp_tools.collectives.path_selection import Pause, Trials

SOONER = 1.1
"""A ring's time over the trees', from which these are worth more connections than a ring's."""

CHANGED = 1.3
"""So many times longer than at best is slower; so many times sooner than at first is faster."""

SLOW_LOOKS = 4
"""In a row, after which it is time to plan anew."""

PERIOD = 16
"""Most looks at reductions along trees until the ring is tried."""

PLANNING_SHARE = 0.03
"""Of the time, that measuring and planning anew may take; half of it after a plan that came to
nothing, and so on."""

_MOST_LEFT = 64  # looks between tries
_NEVER = float("inf")


def trials(by_trees: bool, rounds: int = 1) -> Trials:
    """Trials of trees against the ring. by_trees: whether they are taken."""
    return Trials(by_trees, rounds, SOONER, Pause(1, _MOST_LEFT))


class Choice:
    """has_ring, has_trees: which ways there are.

    Ranks that are told the same make the same choices. A pace is seconds per byte, of the
    reductions since the last look.
    """

    def __init__(self, has_ring: bool) -> None:
        self.has_ring, self.has_trees = has_ring, False
        self._trials = trials(not has_ring)
        self._best: dict[bool, float] = {}  # least pace, by whether along trees
        self._first = 0.0  # pace of the trees, when they were chosen
        self._looks = self._slow = 0  # since the last try; of these, the last ones that were slow
        self._proven = False  # whether these trees have won a try
        self._plans = Pause(1, 2**20)  # of the least time between plans
        self._planned_s = self._took_s = 0.0

    @property
    def by_trees(self) -> bool:
        """Tell whether the next reductions go along trees."""
        return self._trials.ours

    @property
    def trying(self) -> bool:
        """Tell whether the next reductions are a try, or are to be compared with one."""
        return self._trials.trying

    def planned(self, now_s: float, took_s: float, trees: bool, *, tried: bool) -> None:
        """A plan was made, which took took_s until now_s. trees: whether it has some that are worth
        a try. tried: whether that is over."""
        self.has_trees, self._proven = trees, tried
        self._trials = trials(not self.has_ring or (trees and tried))
        if self.has_ring:
            self._plans.tried(in_vain=not tried)  # until trees are proven
            if trees and not tried:
                self._trials.begin()
        self._best, self._first = {}, 0.0
        self._looks = self._slow = 0
        self._planned_s, self._took_s = now_s, took_s

    def look(self, pace: float, least: float, now_s: float) -> bool:
        """Take note of reductions; True where it is time to plan anew.

        least: pace of the fastest of these reductions.
        """
        if self.trying:
            self._try(pace)
            return False
        by_trees = self.by_trees
        best = self._best[by_trees] = min(self._best.get(by_trees, _NEVER), least)
        self._first = self._first or pace
        faster = by_trees and pace * CHANGED < self._first
        self._slow = self._slow + 1 if least > CHANGED * best or faster else 0
        self._looks += 1
        changed = pace > CHANGED * best or faster or (by_trees and self._looks >= PERIOD)
        due = self._looks >= self._trials.pause.length
        if self.has_ring and self.has_trees and changed and due:
            self._trials.begin()
            return False
        pause_s = self._took_s / PLANNING_SHARE * self._plans.length
        return self._slow >= SLOW_LOOKS and now_s >= self._planned_s + pause_s

    def _try(self, pace: float) -> None:
        """One more look's pace."""
        if not self._trials.note(pace):
            return
        self._looks = 0
        if self._trials.changed:
            self._slow, self._first = 0, 0.0
            self._best.pop(True, None)
        if self.by_trees:
            self._proven = True
            self._plans.tried(in_vain=False)
        self.has_trees = self._proven
