# SPDX-License-Identifier: BSD-2-Clause
"""Flows that belong to no job, as jobs of their own: those that a default or a program chose.

What a process sends to one peer is one job, over however many connections, one after the other too.
Only flows that are sure of their iterations count: of others it isn't known that they have any.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from mltcp_tools.base.errors import HostError
from mltcp_tools.kernel.backends.base import Flow, IterationEvent, Job
from mltcp_tools.kernel.congestion_controls import NAMES
from mltcp_tools.kernel.host.cc_sockets import Driven, driven
from mltcp_tools.kernel.host.namespaces import process_name

_LAST = 2**32 - 1


def owners(flows: Iterable[Flow]) -> dict[int, Driven]:
    """Return the owners of these flows' sockets, by cookie, as far as this user may see."""
    if not any(True for _ in flows):
        return {}
    try:
        return {each.cookie: each for each in driven(NAMES)}
    except HostError:
        return {}


class Untagged:
    """The jobs of flows without one, as they come to be known; ids count down from the largest."""

    def __init__(self) -> None:
        self._by_flow: dict[int, int] = {}
        self._by_key: dict[tuple[str, str], Job] = {}

    def update(self, flows: Sequence[Flow], taken: Iterable[Job] = ()) -> None:
        """Look who has the flows that are sure and weren't known yet. taken: jobs that are set."""
        new = [
            flow
            for flow in flows
            if not flow.job_id and flow.cookie not in self._by_flow and flow.confidence > 0
        ]
        held = owners(new)
        for flow in new:
            owner = held.get(flow.cookie)
            who = "no process" if owner and not owner.inode else "hidden process"
            if owner and owner.pid:
                who = process_name(owner.pid)
            key = (who, flow.remote_addr)
            if key not in self._by_key:
                ids = {job.id for job in (*taken, *self._by_key.values())}
                number = next(each for each in range(_LAST, 0, -1) if each not in ids)
                name = f"{who} to {flow.remote_addr}"
                self._by_key[key] = Job(number, name[:63])
            self._by_flow[flow.cookie] = self._by_key[key].id

    @property
    def jobs(self) -> list[Job]:
        """Return the known jobs, in the order in which they came to be."""
        return list(self._by_key.values())

    def flows(self, flows: Iterable[Flow]) -> list[Flow]:
        """The flows, those without a job with that of their own where they have one."""
        return [
            replace(flow, job_id=self._by_flow.get(flow.cookie, 0)) if not flow.job_id else flow
            for flow in flows
        ]

    def events(self, events: Iterable[IterationEvent]) -> list[IterationEvent]:
        """The events, those of flows without a job as of one of their own."""
        return [
            replace(event, job_id=self._by_flow.get(event.cookie, 0)) if not event.job_id else event
            for event in events
        ]
