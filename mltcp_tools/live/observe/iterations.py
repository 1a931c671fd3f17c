# SPDX-License-Identifier: BSD-2-Clause
"""A job's iterations out of those of its flows, and where a reader gets the flows' from."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from statistics import median

from mltcp_tools.kernel.backends.base import IterationEvent, Job

_NEAR_S = 1e-3
# This many connections, one after the other, are no coincidence.
_IN_A_ROW = 4
_OPEN = 2
# Below this share of the usual bytes it is a straggling packet or a heartbeat, not an iteration.
_LEAST_SHARE = 0.05
# Iterations, real ones or not, by which the usual bytes are known.
_KEPT = 16


@dataclass
class _Row:
    """Connections of a job that reported once each: how many came after the ones before."""

    cookies: set[int] = field(default_factory=set)
    held: list[IterationEvent] = field(default_factory=list)
    groups: int = 0
    end_s: float = 0.0


class Whole:
    """Leaves out the events of flows that don't know yet what an iteration is.

    A flow that nobody told its gap reports everything between two gaps until it has learned better;
    its ratio is 0 then. But where a job opens a connection for each iteration, none lives to learn
    anything: of a job whose connections report once each, one after the other, that is the
    iteration. Parallel ones are one.
    """

    def __init__(self) -> None:
        self._rows: dict[int, _Row] = {}

    def of(self, events: Iterable[IterationEvent], jobs: Iterable[Job]) -> list[IterationEvent]:
        """The events that are iterations, or parts of one. jobs: those whose gaps may be known."""
        told = {job.id for job in jobs if job.params.gap_s}
        found = []
        for event in events:
            if event.ratio or event.job_id in told:
                self._rows.pop(event.job_id, None)
                found.append(event)
            else:
                found += self._short_lived(event)
        return found

    def forget(self, job_id: int) -> None:
        """The job has ended; another one may get its id."""
        self._rows.pop(job_id, None)

    def _short_lived(self, event: IterationEvent) -> list[IterationEvent]:
        row = self._rows.setdefault(event.job_id, _Row())
        if event.iteration != 1 or event.cookie in row.cookies:
            self._rows[event.job_id] = _Row()  # it lives on: pieces
            return []
        if not row.cookies or event.first_ack_s > row.end_s:
            row.groups += 1
            row.cookies.clear()  # those before have closed, or would have reported again
        row.cookies.add(event.cookie)
        row.end_s = max(row.end_s, event.last_ack_s)
        row.held.append(event)
        if row.groups < _IN_A_ROW:
            return []
        held, row.held = row.held, []
        return held


@dataclass(frozen=True)
class JobIteration:
    """One iteration of a job on this host: it computes, then its flows send.

    number: from 1. start_s: when the iteration before had sent all; begin_s, end_s: the first and
    the last ACK of this one; CLOCK_MONOTONIC seconds. bytes: acknowledged, by all flows. events:
    what each flow did.
    """

    job_id: int
    number: int
    start_s: float
    begin_s: float
    end_s: float
    bytes: int
    events: tuple[IterationEvent, ...]

    @property
    def duration_s(self) -> float:
        """Seconds from the end of the iteration before to the end of this one."""
        return self.end_s - self.start_s

    @property
    def comm_s(self) -> float:
        """Seconds from the first ACK to the last one."""
        return self.end_s - self.begin_s


@dataclass
class _Open:
    """An iteration that more flows may report."""

    begin_s: float
    end_s: float
    events: dict[int, IterationEvent] = field(default_factory=dict)

    def takes(self, event: IterationEvent) -> bool:
        """Return whether the flow sent while the others did, and hasn't reported this iteration
        yet.
        """
        return (
            event.cookie not in self.events
            and event.first_ack_s <= self.end_s + _NEAR_S
            and event.last_ack_s >= self.begin_s - _NEAR_S
        )

    @property
    def bytes(self) -> int:
        """Acknowledged of all its flows."""
        return sum(event.bytes for event in self.events.values())

    def add(self, event: IterationEvent) -> None:
        self.begin_s = min(self.begin_s, event.first_ack_s)
        self.end_s = max(self.end_s, event.last_ack_s)
        self.events[event.cookie] = event


class JobIterations:
    """Joins the events of one job's flows: those that overlap in time are one iteration.

    A flow reports an iteration when it begins the next one, and flows do so one after the other,
    so an iteration is handed out when two later ones have begun. The first one only says where the
    second starts. What has a tiny share of the usual bytes is none: an iteration goes on over it.
    """

    def __init__(self, job_id: int) -> None:
        self._job_id = job_id
        self._open: list[_Open] = []
        self._number = 0
        self._last_end_s: float | None = None
        self._sizes: deque[int] = deque(maxlen=_KEPT)

    def add(self, event: IterationEvent) -> Iterator[JobIteration]:
        """Take an event; hand out what is complete now, oldest first."""
        if self._last_end_s is not None and event.first_ack_s < self._last_end_s:
            return  # belongs to what was handed out
        for each in reversed(self._open):
            if each.takes(event):
                each.add(event)
                break
        else:
            self._open.append(_Open(event.first_ack_s, event.last_ack_s, {event.cookie: event}))
            self._open.sort(key=lambda each: each.begin_s)
        while len(self._open) > _OPEN:
            yield from self._close(self._open.pop(0))

    def flush(self) -> Iterator[JobIteration]:
        """Hand out the rest; the job has ended, or the reader has."""
        while self._open:
            yield from self._close(self._open.pop(0))

    def _close(self, done: _Open) -> Iterator[JobIteration]:
        self._sizes.append(done.bytes)
        if done.bytes < _LEAST_SHARE * self._usual_bytes():
            return
        start_s = self._last_end_s
        self._last_end_s = done.end_s
        if start_s is None:
            return
        self._number += 1
        yield JobIteration(
            job_id=self._job_id,
            number=self._number,
            start_s=start_s,
            begin_s=max(start_s, done.begin_s),
            end_s=max(start_s, done.end_s),
            bytes=done.bytes,
            events=tuple(done.events.values()),
        )

    def _usual_bytes(self) -> float:
        """Bytes of a whole iteration: the median of the larger half of the latest ones.

        A job may alternate between iterations and fragments; one whose iterations have become small
        for good is believed when most of the latest are.
        """
        sizes = sorted([*self._sizes, *(each.bytes for each in self._open)])
        return median(sizes[len(sizes) // 2 :])
