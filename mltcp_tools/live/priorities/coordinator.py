# SPDX-License-Identifier: BSD-2-Clause
"""The controller across hosts: one order for the jobs of all (host_side.py is each host's end).

Where ids mean the same on all hosts, a job's bursts there are one, with all that is left to send.
Else each host's jobs are its own. When the controller dies, or can't reach a host, the jobs are
alike there half a second later; the other hosts go on.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from mltcp_tools.base.errors import MltcpError
from mltcp_tools.kernel.host.peers import PeerProgram
from mltcp_tools.live.priorities.controller import WAKE_S, Controller
from mltcp_tools.live.priorities.host_side import state_from
from mltcp_tools.live.priorities.maps import KnownJob, PriorityBurst

_END_S = 5.0


class PriorityHost:
    """A host, and the process that serves its maps. command: what starts that, by ssh mostly. base:
    added to the ids of its jobs, so that they are others than those of other hosts."""

    def __init__(self, name: str, command: Sequence[str], base: int = 0) -> None:
        self.name = name
        self._base = base
        self.jobs: dict[int, KnownJob] = {}
        self.bursts: dict[int, PriorityBurst] = {}
        self.gone = False
        self._peer = PeerProgram(command)

    def fileno(self) -> int:
        """Readable when the host has said something, or ended."""
        return self._peer.fileno()

    def hear(self) -> None:
        """Take in what it has said; it is gone where that was its end."""
        try:
            messages = self._peer.read()
        except ValueError as error:
            raise MltcpError(f"{self.name} sent an invalid answer: {error}.") from None
        if messages is None:
            self.gone, self.jobs, self.bursts = True, {}, {}
        elif messages:
            jobs, bursts = state_from(messages[-1], time.monotonic_ns())
            self.jobs = {self._base + job: known for job, known in jobs.items()}
            self.bursts = {self._base + job: burst for job, burst in bursts.items()}

    def tell(self, levels: Mapping[int, int]) -> None:
        """Give it the levels of its jobs, which says also that the controller lives."""
        own: dict[str, Any] = {
            "levels": {job - self._base: levels[job] for job in self.jobs if job in levels}
        }
        self._peer.send(own)

    def close(self) -> None:
        """Let it go: its jobs are alike again."""
        self._peer.close(_END_S)


class Hosts:
    """The jobs of all hosts, as the controller finds those of one in its maps."""

    def __init__(self, hosts: Sequence[PriorityHost]) -> None:
        self._hosts = hosts

    def jobs(self) -> dict[int, KnownJob]:
        """All jobs, each with what all hosts send for it."""
        numbers = {job for host in self._hosts for job in host.jobs}
        return {job: self._known(job) for job in numbers}

    def _known(self, job: int) -> KnownJob:
        found = [host.jobs[job] for host in self._hosts if job in host.jobs]
        sizes = [each.bytes for each in found]
        return KnownJob(
            sum(sizes) if all(sizes) else 0,
            max(each.gap_ns for each in found),
            tuple(sorted({port for each in found for port in each.ports})),
        )

    def burst(self, job: int) -> PriorityBurst | None:
        """Return the progress of the job: in its burst as long as it is so on some host."""
        found = [host.bursts[job] for host in self._hosts if job in host.bursts]
        if not found:
            return None
        going = [each for each in found if each.active] or found
        return PriorityBurst(
            sent=sum(each.sent for each in found),
            began_ns=min(each.began_ns for each in going),
            last_ns=max(each.last_ns for each in going),
            before=sum(each.before for each in found),
            number=max(each.number for each in found),
            active=any(each.active for each in found),
        )

    def set_level(self, job: int, level: int) -> None:
        """Nothing: `PriorityHost.tell` sends them all, again and again."""


def run_hub(
    hosts: Sequence[PriorityHost],
    weighting: str,
    count: int,
    stopped: Callable[[], bool],
    say: Callable[[str], None],
) -> None:
    """Order the jobs of `hosts` until `stopped` says so, or none is left; say: warnings."""
    controller = Controller(Hosts(hosts), weighting, count)
    while not stopped() and (present := [host for host in hosts if not host.gone]):
        for host in _speaking(present):
            host.hear()
            if host.gone:
                say(f"{host.name} is gone; all jobs there have the same priority.")
        levels = controller.update()
        for host in present:
            host.tell(levels)


def _speaking(hosts: Iterable[PriorityHost]) -> list[PriorityHost]:
    ready, _, _ = select.select(list(hosts), [], [], WAKE_S)
    return ready
