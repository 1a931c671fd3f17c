# SPDX-License-Identifier: BSD-2-Clause
"""The view of the attached jobs for people: times of iterations, and who is in the way."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median

from mltcp_tools.base.units import counted, format_seconds
from mltcp_tools.kernel.backends.base import IterationEvent, Job
from mltcp_tools.live.observe.iterations import JobIteration, JobIterations
from mltcp_tools.live.sources.metadata import Metadata

_KEPT = 1000
_FIRST = 5
_LATEST = 10
_OVERLAP = 20
_BEST_SHARE = 0.1


@dataclass(frozen=True)
class Gain:
    """By which share a job's iterations are shorter with mltcp than without, and how sure that is.

    low, high: the interval of 95 %, None where too few rounds were compared. p: how likely chance
    makes as large a difference. rounds: compared so far.
    """

    mean: float
    low: float | None
    high: float | None
    p: float
    rounds: int


@dataclass(frozen=True)
class JobView:
    """One job as it stands. Times are seconds, None while there are no iterations.

    flows: sockets tagged with it. iterations: seen since it is watched. iteration_s: median of the
    latest 10; first_s: median of the first 5; best_s: the time that the fastest tenth stays under.
    overlap: share (0..1) of its communication time, over the latest 20 iterations, in which
    another job of this host communicated too. metadata: the source believed, None without any.
    queue_us, full_queue_us: the largest of its flows, as they are now. gain: what the
    agent's standing proof found, None without one. before_s: as iteration_s, while the job was only
    observed; None where that isn't known, or it still is. uid: whose it is, where a follower knows.
    """

    id: int
    name: str
    flows: int
    iterations: int
    iteration_s: float | None
    first_s: float | None
    best_s: float | None
    overlap: float | None
    metadata: Metadata | None
    queue_us: int = 0
    full_queue_us: int = 0
    gain: Gain | None = None
    before_s: float | None = None
    uid: int | None = None

    @property
    def change(self) -> float | None:
        """Return the change of iterations, longer above 0 and shorter below, as a share of
        before_s.
        """
        if not self.iteration_s or not self.before_s:
            return None
        return self.iteration_s / self.before_s - 1

    @property
    def ratio(self) -> float | None:
        """The latest iterations' time over the job's best."""
        if not self.iteration_s or not self.best_s:
            return None
        return self.iteration_s / self.best_s


def summary(view: JobView) -> str:
    """Return the course of a job, in a few words."""
    if view.iteration_s is None or view.first_s is None or view.best_s is None:
        return "no iterations were seen"
    return (
        f"{counted(view.iterations, 'iteration')}, {format_seconds(view.first_s)} each at first,"
        f" {format_seconds(view.iteration_s)} at last, {format_seconds(view.best_s)} at best"
    )


@dataclass
class _Seen:
    joined: JobIterations
    count: int = 0
    first: list[float] = field(default_factory=list)
    observed_s: float | None = None
    """The time of iterations while the job was only observed."""
    kept: deque[JobIteration] = field(default_factory=lambda: deque(maxlen=_KEPT))


class Views:
    """The iterations of all jobs, from events as they come to views whenever somebody looks."""

    def __init__(self) -> None:
        self._seen: dict[int, _Seen] = {}

    def add(self, events: Iterable[IterationEvent]) -> list[JobIteration]:
        """Take events of any jobs; return the jobs' iterations that are complete by that."""
        complete = []
        for event in events:
            if not event.job_id:
                continue
            seen = self._seen.setdefault(event.job_id, _Seen(JobIterations(event.job_id)))
            complete += self._keep(seen, seen.joined.add(event))
        return complete

    def flush(self) -> list[JobIteration]:
        """The iterations that only later ones would have completed; there will be none."""
        found = []
        for seen in self._seen.values():
            found += self._keep(seen, seen.joined.flush())
        return found

    def _keep(self, seen: _Seen, complete: Iterable[JobIteration]) -> list[JobIteration]:
        # One that took no time is the rest of what an end cut short.
        kept = [each for each in complete if each.duration_s > 0]
        seen.count += len(kept)
        seen.kept.extend(kept)
        seen.first += [each.duration_s for each in kept][: _FIRST - len(seen.first)]
        return kept

    def forget(self, job_id: int) -> None:
        """The job has ended."""
        self._seen.pop(job_id, None)

    def of(self, job: Job, flows: int, metadata: Metadata | None) -> JobView:
        """The job as it stands."""
        seen = self._seen.get(job.id) or _Seen(JobIterations(job.id))
        times = [each.duration_s for each in seen.kept]
        if job.params.observed and times:
            seen.observed_s = median(times[-_LATEST:])
        return JobView(
            id=job.id,
            name=job.name,
            flows=flows,
            iterations=seen.count,
            iteration_s=median(times[-_LATEST:]) if times else None,
            first_s=median(seen.first) if seen.first else None,
            best_s=sorted(times)[int(len(times) * _BEST_SHARE)] if times else None,
            overlap=self._overlap(job.id, list(seen.kept)[-_OVERLAP:]),
            metadata=metadata,
            before_s=None if job.params.observed else seen.observed_s,
        )

    def _overlap(self, job_id: int, own: Sequence[JobIteration]) -> float | None:
        busy_s = sum(each.comm_s for each in own)
        if busy_s <= 0:
            return None
        since_s = own[0].begin_s
        others = [
            (each.begin_s, each.end_s)
            for other, seen in self._seen.items()
            if other != job_id
            for each in seen.kept
            if each.end_s > since_s
        ]
        shared_s = 0.0
        for each in own:
            reached_s = each.begin_s
            for begin_s, end_s in sorted(others):
                begin_s, end_s = max(begin_s, reached_s), min(end_s, each.end_s)
                if end_s > begin_s:
                    shared_s += end_s - begin_s
                    reached_s = end_s
        return shared_s / busy_s
