"""The iterations of jobs as they show from outside, whatever congestion control they run.

Nothing is touched: the kernel is asked, every few milliseconds, how far a job's busiest connections
have come. What their iterations look like is learned first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from mltcp_tools.errors import MltcpError
from mltcp_tools.live.attach.sockets import Socket
from mltcp_tools.live.observe.meter import Meter, Watcher, look_of
from mltcp_tools.live.observe.pulse import Beat, Look, Pulse, best_rhythm
from mltcp_tools.units import format_seconds

_LOOK_S = 0.005
"""Between two looks while iterations are learned; later a part of the shortest pause."""

_LOOK_MOST_S = 0.05
_PAUSE_PART = 25
_SHARE = 0.15
"""Of a processor that looking may take."""

_FIRST_TRY_S = 3.0
_ITERATIONS = 15
"""That are seen before a rhythm is believed."""

_Looks = list[tuple[float, dict[int, tuple[int, float]]]]
"""Of a job: the times, and by cookie the bytes moved and for how long it has been quiet."""


class NoIterations(MltcpError):
    """A job has no iterations that can be seen. job: its name."""

    def __init__(self, job: str, seconds: float) -> None:
        super().__init__(
            f"No iterations of {job} are known: in {format_seconds(seconds)} its connections showed"
            " none that repeat with a pause between them. Without iterations there is nothing to"
            " compare."
        )
        self.job = job


@dataclass
class _Followed:
    """A job that is watched. chosen: the connections that show its iterations, by cookie."""

    watcher: Watcher
    chosen: frozenset[int] = frozenset()
    pulse: Pulse | None = None


class Outside:
    """Sees jobs' iterations. between: called between two looks; it may raise to end the looking."""

    def __init__(self, meter: Meter, between: Callable[[], None]) -> None:
        self._meter = meter
        self._between = between
        self._followed: dict[str, _Followed] = {}
        self._pause_s = _LOOK_S

    def learn(
        self, sockets: Mapping[str, Sequence[Socket]], patience_s: float
    ) -> dict[str, list[Beat]]:
        """Follow these connections, by job, from now on; the iterations seen while learning.

        Raises NoIterations where a job has none within patience_s.
        """
        self._followed = {job: _Followed(Watcher(own, self._meter)) for job, own in sockets.items()}
        looks: dict[str, _Looks] = {job: [] for job in sockets}
        begin_s, try_at_s, pause_s = time.monotonic(), _FIRST_TRY_S, _LOOK_S
        while True:
            for job, each in self._followed.items():
                at_s, found = each.watcher.look()
                pause_s = max(pause_s, (time.monotonic() - at_s) / _SHARE)
                slim = {
                    cookie: (one.acknowledged + one.received, one.quiet_s)
                    for cookie, one in found.items()
                }
                looks[job].append((at_s, slim))
            passed_s = time.monotonic() - begin_s
            if passed_s >= min(try_at_s, patience_s):
                try_at_s *= 2
                beats = self._choose(looks, passed_s)
                if isinstance(beats, dict):
                    return beats
                if passed_s >= patience_s:
                    raise NoIterations(beats, passed_s)
            self._between()
            time.sleep(pause_s)

    def _choose(self, looks: Mapping[str, _Looks], passed_s: float) -> dict[str, list[Beat]] | str:
        """The iterations of each job, now that their rhythms are known; else whose isn't."""
        beats: dict[str, list[Beat]] = {}
        gaps_s = []
        for job, each in self._followed.items():
            choices = each.watcher.choices()
            series = [_series(looks[job], chosen) for chosen in choices]
            best = best_rhythm(enumerate(series))
            if best is None or best[1].period_s * _ITERATIONS > passed_s:
                return job
            each.chosen = choices[best[0]]
            each.pulse = Pulse(best[1])
            gaps_s.append(best[1].gap_s)
            beats[job] = [beat for look in series[best[0]] if (beat := each.pulse.add(look))]
            if len(beats[job]) < _ITERATIONS // 2:
                return job
        self._pause_s = min(max(_LOOK_S, min(gaps_s) / _PAUSE_PART), _LOOK_MOST_S)
        return beats

    def wait(self) -> list[tuple[str, Beat]]:
        """Let a moment pass; the iterations that ended in it, each with its job."""
        time.sleep(self._pause_s)
        begin_s = time.monotonic()
        beats = []
        for job, each in self._followed.items():
            assert each.pulse is not None
            beat = each.pulse.add(look_of(*each.watcher.look(), each.chosen))
            if beat is not None:
                beats.append((job, beat))
        self._pause_s = max(self._pause_s, (time.monotonic() - begin_s) / _SHARE)
        self._between()
        return beats

    def closed(self) -> list[str]:
        """The jobs that had no open connection at the last look."""
        return [job for job, each in self._followed.items() if not each.watcher.open]


def _series(looks: _Looks, chosen: frozenset[int]) -> list[Look]:
    """Return the looks at some of the connections."""
    found = []
    for at_s, seen in looks:
        own = [seen[cookie] for cookie in chosen if cookie in seen]
        quiet_s = min((each[1] for each in own), default=0.0)
        found.append(Look(at_s, sum(each[0] for each in own), quiet_s))
    return found
