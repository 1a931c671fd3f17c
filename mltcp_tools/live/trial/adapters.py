# SPDX-License-Identifier: BSD-2-Clause
"""Live jobs on this host, as a trial acts on them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from mltcp_tools.base.errors import MltcpError
from mltcp_tools.kernel.backends.base import Backend
from mltcp_tools.live.attach.sockets import sockets_of
from mltcp_tools.live.attach.state import StateFiles
from mltcp_tools.live.observe.conditions import (
    HostCounters,
    Own,
    Span,
    differences,
    path_of,
    read_counters,
    span,
)
from mltcp_tools.live.observe.iteration_detector import Iteration
from mltcp_tools.live.observe.meter import Meter
from mltcp_tools.live.observe.passive import PassiveObserver
from mltcp_tools.live.trial.rollback import Lease
from mltcp_tools.live.trial.subjects import Subject
from mltcp_tools.live.trial.surroundings import Counted, Interrupted, JobEnded, World

_CHECK_S = 1.0
_MUCH = 0.01
"""Share of a job's bytes that a connection has moved whose coming or going counts."""


@dataclass(frozen=True)
class _Edge:
    """The counts at the beginning or the end of a period. moved: by job, of each connection.

    again: bytes that the jobs have sent again.
    """

    counters: HostCounters
    moved: dict[str, dict[int, int]]
    again: int
    retransmits: dict[str, int]


class LiveWorld(World):
    """The subjects, by way of live/attach. interrupted: whether somebody ends the trial.

    congestion_control: what the other variant runs. patience_s: how long a rhythm is looked for.
    """

    def __init__(
        self,
        subjects: Sequence[Subject],
        congestion_control: str,
        backend: Backend,
        lease: Lease,
        meter: Meter,
        interrupted: Callable[[], bool],
        patience_s: float,
    ) -> None:
        self._subjects = subjects
        self._name = congestion_control
        self._backend = backend
        self._lease = lease
        self._meter = meter
        self._interrupted = interrupted
        self._patience_s = patience_s
        self._variant = ""
        self._observer = PassiveObserver(meter, self._alive)
        self._check_at_s = 0.0
        self._begun: list[_Edge] = []
        self._spans: dict[int, tuple[Span, Own]] = {}
        """Of each period that has ended, by its number, with what the jobs moved themselves."""

    def now_s(self) -> float:
        return time.monotonic()

    # Iterations

    def learn(self) -> Mapping[str, Sequence[Iteration]]:
        for each in self._subjects:
            try:
                each.look_again()
            except MltcpError as error:
                raise JobEnded(str(error)) from None
        sockets = {each.name: each.sockets for each in self._subjects}
        return self._observer.learn(sockets, self._patience_s)

    def wait(self) -> list[tuple[str, Iteration]]:
        iterations = self._observer.wait()
        for job in self._observer.closed():
            raise JobEnded(f"{job} has closed its connections.")
        return iterations

    def _alive(self) -> None:
        """Check now and then: our own lease, signals, and the processes."""
        if self._interrupted():
            raise Interrupted
        now_s = self.now_s()
        if now_s < self._check_at_s:
            return
        self._check_at_s = now_s + _CHECK_S
        self._lease.renew()
        for each in self._subjects:
            if ended := [one.pid for one in each.processes if not one.is_running()]:
                raise JobEnded(f"{each.name} has ended (process {ended[0]}).")

    # Variants

    def switch(self, variant: str) -> None:
        if variant == self._variant:
            return
        self._variant = variant
        for each in self._subjects:
            each.switch(variant, self._name, self._backend)
        self._lease.renew()

    # What is around them

    def begin_period(self) -> int:
        self._begun.append(self._count())
        return len(self._begun) - 1

    def end_period(self, period: int) -> Counted:
        before, after = self._begun[period], self._count()
        seen = span(before.counters, after.counters)
        total = 0
        counted = Counted([], {})
        for name, ours in after.moved.items():
            moved = {
                cookie: count - before.moved[name].get(cookie, 0) for cookie, count in ours.items()
            }
            whole = sum(moved.values())
            total += whole
            retransmits = after.retransmits[name] - before.retransmits[name]
            counted.retransmits[name] = max(0, retransmits)
            new = moved.keys() - before.moved[name].keys()
            if sum(moved[cookie] for cookie in new) > _MUCH * whole:
                counted.notes.append(
                    f"{name} opened {len(new)} connections, as a process group's first collective"
                    " does; further rounds switch these, too."
                )
            if before.moved[name].keys() - ours.keys():
                counted.notes.append(f"{name} closed connections.")
        again = max(0, after.again - before.again)
        own = Own(total / seen.length_s, (total + again) / seen.length_s)
        self._spans[period] = seen, own
        return counted

    def unlike(self, one: int, other: int) -> list[str]:
        (first, own), (second, other_own) = self._spans[one], self._spans[other]
        return differences(first, second, (own, other_own))

    def _count(self) -> _Edge:
        names = {each.name for each in self._subjects}
        others = [state.job.name for state in StateFiles().read()]
        moved, retransmits, again = {}, {}, 0
        for each in self._subjects:
            # All connections of its processes, as new ones may have come.
            own = [one for one in sockets_of(each.processes)[0] if one.state == "established"]
            found = self._meter.read(own)
            ours = {one.cookie for one in each.sockets}
            moved[each.name] = {
                cookie: one.acknowledged + one.received for cookie, one in found.items()
            }
            again += sum(one.bytes_again for one in found.values())
            retransmits[each.name] = sum(
                one.retransmits for cookie, one in found.items() if cookie in ours
            )
        path = path_of(one for each in self._subjects for one in each.sockets)
        counters = read_counters((name for name in others if name not in names), path)
        return _Edge(counters, moved, again, retransmits)
