"""Running an arm again where something else on the host disturbed it, and saying so."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from mltcp_tools.host.disturbance import Watch
from mltcp_tools.runs.disturbance import Disturbance, judge, rows_of
from mltcp_tools.runs.recorder import Tables


class Attempts:
    """The runs of each arm until one is undisturbed, or there have been `most`.

    Whoever runs the arm reports what was watched to `judge`, before its run ends. Its rows are
    dropped from `tables` before the next run; the last one's stay, disturbed or not. `say` is told
    of every disturbed run; reports see it in the table `disturbance`.
    """

    def __init__(self, most: int, tables: Tables, say: Callable[[str], None]) -> None:
        self._most = most
        self._tables = tables
        self._say = say
        self._key = ("", 0, 0)
        self._found: Disturbance | None = None

    def of(self, arm: str, repetition: int) -> Iterator[int]:
        """The numbers of the arm's runs, from 1; ends with an undisturbed one, or the last."""
        for attempt in range(1, self._most + 1):
            if attempt > 1:
                self._tables.drop(arm, repetition)
            self._key, self._found = (arm, repetition, attempt), None
            yield attempt
            if self._found is None or not self._found.disturbed:
                return
            self._say(self._sentence(self._found))

    def judge(self, watch: Watch, spans: Sequence[tuple[float, float]]) -> None:
        """Record the seconds of the present run, while its jobs ran: from, to (CLOCK_MONOTONIC)."""
        arm, repetition, attempt = self._key
        seconds = [each for begin, end in spans for each in watch.seconds(begin, end)]
        rows = rows_of(seconds, spans[0][0])
        self._tables.add_disturbance(arm, repetition, attempt, rows)
        self._found = judge(rows, attempt)

    def _sentence(self, found: Disturbance) -> str:
        arm, repetition, attempt = self._key
        then = "it is run again" if attempt < self._most else "it can't be compared with others"
        times = f" in run {attempt} of at most {self._most}" if self._most > 1 else ""
        return f"{arm}, repetition {repetition}, was disturbed{times}: {found.sentence()}; {then}."
