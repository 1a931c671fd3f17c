# SPDX-License-Identifier: BSD-2-Clause
"""A backend without a kernel: jobs whose flows report iterations as a test says."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from mltcp_tools.kernel.backends.base import Backend, Flow, IterationEvent, IterationStream, Job


def event(
    job: int,
    cookie: int,
    number: int,
    first_s: float,
    last_s: float,
    size: int = 100,
    ends: tuple[str, str] = ("10.0.0.1", "10.0.0.2"),
) -> IterationEvent:
    """A flow's iteration."""
    return IterationEvent(
        job_id=job,
        cookie=cookie,
        local_addr=ends[0],
        local_port=1000 + cookie,
        remote_addr=ends[1],
        remote_port=2,
        iteration=number,
        first_ack_s=first_s,
        last_ack_s=last_s,
        bytes=size,
        retransmits=0,
        srtt_us=100,
        cwnd=10,
        ratio=1.0,
    )


class Told(IterationStream):
    """The events of a backend, a few at a time."""

    def __init__(self, events: Iterable[IterationEvent]) -> None:
        self._events = list(events)

    def poll(self, timeout_s: float) -> list[IterationEvent]:
        if not self._events:
            time.sleep(timeout_s)
        some, self._events = self._events[:3], self._events[3:]
        return some

    def close(self) -> None:
        self._events = []


class WatchedBackend(Backend):
    """Has these jobs and flows, and events from now on."""

    name = "told"

    def __init__(
        self, jobs: Sequence[Job], flows: Sequence[Flow], events: Iterable[IterationEvent]
    ) -> None:
        self._jobs, self._flows, self._events = list(jobs), list(flows), list(events)

    def jobs(self) -> list[Job]:
        return self._jobs

    def flows(self) -> list[Flow]:
        return self._flows

    def iterations(self) -> IterationStream:
        return Told(self._events)


WatchedBackend.__abstractmethods__ = frozenset()
