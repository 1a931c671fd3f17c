# SPDX-License-Identifier: BSD-2-Clause
"""One job that is followed: what is known of it, and the parameters its flows get from that."""

from __future__ import annotations

import dataclasses

from mltcp_tools.kernel.backends.base import Job
from mltcp_tools.live.agent.rules import Rule
from mltcp_tools.live.attach.processes import Process
from mltcp_tools.live.sources.messages import Message
from mltcp_tools.live.sources.metadata import Chooser, Metadata
from mltcp_tools.live.sources.rhythm import HookRhythm

_NOTABLE = 0.1


class Followed:
    """A job of one rule. job: with the parameters to give it now. owner: uid of its processes.

    place: the cgroup that gave the job its name, empty where none did (naming.place_of). Parameters
    that no source tells stay 0: the flows learn them.
    """

    def __init__(self, job: Job, rule: Rule, owner: int, place: str = "") -> None:
        self.job = job
        self.rule = rule
        self.owner = owner
        self.place = place
        self.overridden = (0.0, "")
        """The sentence on another program that sets its congestion control, and until when it is
        to be shown."""
        self._chooser = Chooser()
        self._rhythm = HookRhythm()
        self._spoken = False
        self._learned: Metadata | None = None
        self._said: Metadata | None = None

    def is_place_of(self, process: Process) -> bool:
        """Return whether the process is still in the cgroup that gave it the job's name, if one
        did."""
        below = f"{self.place}/"
        return not self.place or any(f"{each}/".startswith(below) for each in process.cgroups)

    def hear(self, message: Message) -> None:
        """One of its processes tells an iteration."""
        self._rhythm.add(message)
        self._spoken = True

    def tell(self, metadata: Metadata, now_s: float) -> None:
        """Another source says what it knows."""
        self._chooser.tell(metadata, now_s)

    def see(self, learned: Metadata | None) -> None:
        """Take note of what its flows have learned."""
        self._learned = learned

    def forget(self, pid: int) -> None:
        """The process is no longer of this job."""
        self._rhythm.forget(pid)

    def best(self, now_s: float) -> Metadata | None:
        """Return the knowledge of its iterations: by the best source that speaks, or by its
        flows.
        """
        return self._chooser.best(now_s) or self._learned

    def news(self, now_s: float) -> Metadata | None:
        """Return the knowledge, if another source or another size is news since the last call."""
        known, before = self.best(now_s), self._said
        if known is None or (before is not None and _alike(known, before)):
            return None
        self._said = known
        return known

    def learn(self, now_s: float) -> Job | None:
        """Draw conclusions from what was told since the last call; the job when it has changed.

        Bytes and gap of the rule stay as they are.
        """
        if self._spoken and (said := self._rhythm.metadata()):
            self._chooser.tell(said, now_s)
        self._spoken = False
        best = self._chooser.best(now_s)
        if best is None:  # silence is no reason to forget
            return None
        rule, before = self.rule, self.job.params
        burst_bytes, gap_s = rule.burst_bytes, rule.gap_s
        if burst_bytes is None:
            burst_bytes = best.bytes_per_iteration or before.burst_bytes
        if gap_s is None:
            gap_s = best.gap_s or before.gap_s
        if _near(burst_bytes, before.burst_bytes) and _near(gap_s, before.gap_s):
            return None
        params = dataclasses.replace(before, burst_bytes=burst_bytes, gap_s=gap_s)
        self.job = Job(self.job.id, self.job.name, params)
        return self.job


def _alike(known: Metadata, before: Metadata) -> bool:
    sizes = (known.bytes_per_iteration or 0, before.bytes_per_iteration or 0)
    return known.source == before.source and _near(*sizes)


def _near(value: float, before: float) -> bool:
    """Return whether a change is too small to be worth one."""
    return value == before or abs(value - before) <= _NOTABLE * before
