"""Choose the ring or trees, and when to plan anew, by the time that reductions take.

Another job's bursts make a link look slower for a while, as does a link that has become slower. The
cheapest way to tell is to try: where reductions take longer than before (or, along trees, less
long), those until the next look go the other way, and where these are sooner, both ways are tried
once more. A try that came to nothing doubles the time until the next one. To measure and plan costs
more, so it has a small share of the time, and reductions must have been slow for a while, all of
them: those between two bursts of another job are as fast as ever.
"""

from __future__ import annotations

from enum import Enum, auto

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

_MOST_WAIT = 64  # looks between tries

_NEVER = float("inf")


class Way(Enum):
    """Ways of reductions."""

    RING = auto()
    TREES = auto()


class Choice:
    """way: how the next reductions go. has_ring, has_trees: which ways there are.

    Ranks that are told the same make the same choices. A pace is seconds per byte, of the
    reductions since the last look.
    """

    def __init__(self, has_ring: bool) -> None:
        self.has_ring, self.has_trees = has_ring, False
        self.way = Way.RING if has_ring else Way.TREES
        self._best: dict[Way, float] = {}  # least pace
        self._first = 0.0  # pace of the trees, when they were chosen
        self._looks = self._slow = 0  # since the last try; of these, the last ones that were slow
        self._wait = 1  # looks until a try, at least
        self._paces: list[float] | None = None  # of a try: by turns the way before, and the other
        self._proven = False  # whether these trees have won a try
        self._fruitless = 0  # plans in a row
        self._planned_s = self._took_s = 0.0

    @property
    def trying(self) -> bool:
        """Tell whether the next reductions are a try, or are to be compared with one."""
        return self._paces is not None

    def planned(self, now_s: float, took_s: float, trees: bool, *, tried: bool) -> None:
        """A plan was made, which took took_s until now_s. trees: whether it has some that are worth
        a try. tried: whether that is over."""
        self.has_trees, self._proven = trees, tried
        if self.has_ring:
            self.way = Way.TREES if trees and tried else Way.RING
            self._paces = [] if trees and not tried else None
            self._fruitless = 0 if tried else self._fruitless + 1  # until trees are proven
        self._best, self._first = {}, 0.0
        self._looks = self._slow = 0
        self._wait = 1
        self._planned_s, self._took_s = now_s, took_s

    def look(self, pace: float, least: float, now_s: float) -> bool:
        """Take note of reductions; True where it is time to plan anew.

        least: pace of the fastest of these reductions.
        """
        if self._paces is not None:
            self._try(self._paces, pace)
            return False
        best = self._best[self.way] = min(self._best.get(self.way, _NEVER), least)
        self._first = self._first or pace
        by_trees = self.way is Way.TREES
        faster = by_trees and pace * CHANGED < self._first
        self._slow = self._slow + 1 if least > CHANGED * best or faster else 0
        self._looks += 1
        changed = pace > CHANGED * best or faster or (by_trees and self._looks >= PERIOD)
        if self.has_ring and self.has_trees and changed and self._looks >= self._wait:
            self._paces = []
            return False
        pause_s = self._took_s / PLANNING_SHARE * 2**self._fruitless
        return self._slow >= SLOW_LOOKS and now_s >= self._planned_s + pause_s

    def _turn(self) -> None:
        self.way = Way.RING if self.way is Way.TREES else Way.TREES

    def _try(self, paces: list[float], pace: float) -> None:
        """One more look's pace: of the way before, of the other, and of both again."""
        paces.append(pace)
        if len(paces) % 2:
            self._turn()
            return
        other, before = paces[-1], paces[-2]
        sooner = other * SOONER <= before if self.way is Way.TREES else other < before
        if sooner and len(paces) < 4:
            self._turn()
            return
        self._looks, self._paces = 0, None
        if sooner:
            self._wait = max(1, self._wait // 2)
            self._slow, self._first = 0, pace
            self._best[self.way] = min(pace, self._best.get(self.way, _NEVER))
            if self.way is Way.TREES:
                self._proven, self._fruitless = True, 0
                self._best[self.way] = pace
            return
        self._turn()
        self._wait = min(_MOST_WAIT, 2 * self._wait)
        if not self._proven:
            self.has_trees = False
