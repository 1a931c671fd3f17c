# SPDX-License-Identifier: BSD-2-Clause
"""The iterations of jobs as they show from outside, whatever congestion control they run.

Nothing is touched: the kernel is asked, every few milliseconds, how far a job's busiest connections
have come. What their iterations look like is learned first.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from mltcp_tools.base.errors import MltcpError
from mltcp_tools.base.units import counted, format_bytes, format_seconds
from mltcp_tools.live.attach.sockets import Socket
from mltcp_tools.live.observe.iteration_detector import (
    Iteration,
    IterationDetector,
    Sample,
    best_rhythm,
    bursts,
)
from mltcp_tools.live.observe.meter import Meter, Watcher, sample_of

_LOOK_S = 0.005
"""Between two samples while iterations are learned; later a part of the shortest pause."""

_LOOK_MOST_S = 0.05
_PAUSE_PART = 25
_SHARE = 0.15
"""Of a CPU that looking may take."""

_FIRST_TRY_S = 3.0
_ITERATIONS = 15
"""That are seen before a rhythm is believed."""

_Samples = list[tuple[float, dict[int, tuple[int, float]]]]
"""Of a job: the times, and by cookie the bytes moved and for how long it has been quiet."""


class NoIterations(MltcpError):
    """A job has no iterations that can be seen. job: its name. samples: at its connections."""

    def __init__(self, job: str, seconds: float, samples: Sequence[Sample]) -> None:
        super().__init__(
            f"No iterations of {job} are known: in {format_seconds(seconds)} {_told(samples)}."
            " Without iterations there is nothing to compare."
        )
        self.job = job


def _told(samples: Sequence[Sample]) -> str:
    """Return what the samples showed instead of iterations, and what to do; a part of a
    sentence."""
    sizes = sorted(each.size for each in bursts(samples))
    if not sizes:
        return "its connections moved nothing; see that it trains, and that these are its processes"
    if len(sizes) < _ITERATIONS:
        return (
            f"its connections were silent {counted(len(sizes) - 1, 'time')} only; an iteration"
            " shows where all of them rest for a while, so name one job's processes alone, and look"
            " for longer if its iterations take long"
        )
    shares = (sizes[len(sizes) // 10], sizes[len(sizes) // 2], sizes[-1 - len(sizes) // 10])
    usual = ", ".join(format_bytes(each) for each in shares)
    return (
        f"its connections sent {len(sizes)} bursts that don't resemble each other (a tenth, half"
        f" and nine tenths are below {usual}); pauses of TCP's timeouts cut iterations into"
        " pieces, so look again, or for longer, when the link is less full"
    )


@dataclass
class _Followed:
    """A job that is watched. chosen: the connections that show its iterations, by cookie."""

    watcher: Watcher
    chosen: frozenset[int] = frozenset()
    detector: IterationDetector | None = None


class _Pace:
    """The pause between samples, so that these take _SHARE of a CPU at most.

    Processor time counts, and the cheaper one of two samples: a sample that was only kept waiting
    on a busy host must not make the next ones rarer than iterations are.
    """

    def __init__(self, least_s: float) -> None:
        self.least_s = least_s
        self._before_s = math.inf

    def after(self, cost_s: float) -> float:
        """The pause after samples that took so much CPU time."""
        cheaper_s, self._before_s = min(self._before_s, cost_s), cost_s
        return max(self.least_s, cheaper_s / _SHARE)


class PassiveObserver:
    """Sees jobs' iterations. between: called between two samples; it may raise to end the
    looking."""

    def __init__(self, meter: Meter, between: Callable[[], None]) -> None:
        self._meter = meter
        self._between = between
        self._followed: dict[str, _Followed] = {}
        self._pace = _Pace(_LOOK_S)
        self._pause_s = _LOOK_S

    def learn(
        self, sockets: Mapping[str, Sequence[Socket]], patience_s: float
    ) -> dict[str, list[Iteration]]:
        """Follow these connections, by job, from now on; the iterations seen while learning.

        Raises NoIterations where a job has none within patience_s.
        """
        self._followed = {job: _Followed(Watcher(own, self._meter)) for job, own in sockets.items()}
        samples: dict[str, _Samples] = {job: [] for job in sockets}
        begin_s, try_at_s, pace = time.monotonic(), _FIRST_TRY_S, _Pace(_LOOK_S)
        while True:
            before_s = time.thread_time()
            for job, each in self._followed.items():
                at_s, found = each.watcher.sample()
                slim = {
                    cookie: (one.acknowledged + one.received, one.quiet_s)
                    for cookie, one in found.items()
                }
                samples[job].append((at_s, slim))
            pause_s = pace.after(time.thread_time() - before_s)
            passed_s = time.monotonic() - begin_s
            if passed_s >= min(try_at_s, patience_s):
                try_at_s *= 2
                iterations = self._choose(samples, passed_s)
                if isinstance(iterations, dict):
                    return iterations
                if passed_s >= patience_s:
                    whole = frozenset(cookie for _, seen in samples[iterations] for cookie in seen)
                    raise NoIterations(iterations, patience_s, _series(samples[iterations], whole))
            self._between()
            time.sleep(pause_s)

    def _choose(
        self, samples: Mapping[str, _Samples], passed_s: float
    ) -> dict[str, list[Iteration]] | str:
        """The iterations of each job, now that their rhythms are known; else whose isn't."""
        iterations: dict[str, list[Iteration]] = {}
        gaps_s = []
        for job, each in self._followed.items():
            choices = each.watcher.choices()
            series = [_series(samples[job], chosen) for chosen in choices]
            best = best_rhythm(enumerate(series))
            if best is None or best[1].period_s * _ITERATIONS > passed_s:
                return job
            each.chosen = choices[best[0]]
            each.detector = IterationDetector(best[1])
            gaps_s.append(best[1].gap_s)
            iterations[job] = [
                iteration for sample in series[best[0]] if (iteration := each.detector.add(sample))
            ]
            if len(iterations[job]) < _ITERATIONS // 2:
                return job
        self._pause_s = min(max(_LOOK_S, min(gaps_s) / _PAUSE_PART), _LOOK_MOST_S)
        self._pace = _Pace(self._pause_s)
        return iterations

    def wait(self) -> list[tuple[str, Iteration]]:
        """Let a moment pass; the iterations that ended in it, each with its job."""
        time.sleep(self._pause_s)
        before_s = time.thread_time()
        iterations = []
        for job, each in self._followed.items():
            assert each.detector is not None
            iteration = each.detector.add(sample_of(*each.watcher.sample(), each.chosen))
            if iteration is not None:
                iterations.append((job, iteration))
        self._pause_s = self._pace.after(time.thread_time() - before_s)
        self._between()
        return iterations

    def closed(self) -> list[str]:
        """The jobs that had no open connection at the last look."""
        return [job for job, each in self._followed.items() if not each.watcher.open]


def _series(samples: _Samples, chosen: frozenset[int]) -> list[Sample]:
    """Return the samples at some of the connections."""
    found = []
    for at_s, seen in samples:
        own = [seen[cookie] for cookie in chosen if cookie in seen]
        quiet_s = min((each[1] for each in own), default=0.0)
        found.append(Sample(at_s, sum(each[0] for each in own), quiet_s))
    return found
