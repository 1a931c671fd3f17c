"""Trials of a way by turns with the one that was there; it knows neither torch nor a clock."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

SETTLE = 2
"""Iterations before a trial: after the first one DDP makes its buckets anew."""

BLOCKS = (False, True, True, False)
"""The order of turns in a trial, ours or what was there, by which a drift is the same for both."""

ROUNDS = 3
"""Iterations of each block; the first one doesn't count, for connections and windows grow in it."""

SOONER = 1.05
"""The other's iteration time over ours, at the median, from which ours wins."""

HOPELESS = 2.0
"""The times longer that one iteration of ours may take before the trial is over."""

LEAST_PAUSE, MOST_PAUSE = 512, 16_384
"""Iterations between trials; twice as many after each with the same end."""


class Trial:
    """ours: whether the next iteration goes our way. Ranks that are told the same decide alike.

    counts: whether `note` is to be called with the next iteration's seconds. said: one sentence on
    how the last trial ended; empty before.
    """

    def __init__(self) -> None:
        self.ours = self.counts = False
        self.said = ""
        self._seconds: dict[bool, list[float]] = {}
        self._course = self._run()
        next(self._course)

    def note(self, seconds: float) -> None:
        """Take the seconds of an iteration that counted, until its last bucket's end."""
        self._seconds[self.ours].append(seconds)

    def go_on(self) -> None:
        """One more iteration is over."""
        next(self._course)

    def _run(self) -> Iterator[None]:
        """Yield before each iteration."""
        for _ in range(SETTLE):
            yield
        pause, won = LEAST_PAUSE, False
        while True:
            self._seconds = {True: [], False: []}
            for self.ours in BLOCKS:
                for turn in range(ROUNDS):
                    self.counts = turn > 0
                    yield
                if self._hopeless():
                    break
            self.counts = False
            before, self.ours = won, self._won()
            won = self.ours
            pause = min(MOST_PAUSE, 2 * pause) if won == before else LEAST_PAUSE
            for _ in range(pause):
                yield

    def _hopeless(self) -> bool:
        ours, theirs = self._seconds[True], self._seconds[False]
        return bool(ours) and min(ours) > HOPELESS * max(theirs)

    def _won(self) -> bool:
        ours, theirs = median(self._seconds[True]), median(self._seconds[False])
        won = ours * SOONER <= theirs
        self.said = (
            f"iterations communicate for {ours * 1e3:.3g} ms, for {theirs * 1e3:.3g} ms by the"
            f" job's own way, which is {'left for now' if won else 'kept'}"
        )
        return won
