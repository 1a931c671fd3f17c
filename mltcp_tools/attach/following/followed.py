"""One job that is followed: what is known of it, and the parameters its flows get from that."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from mltcp_tools.attach.following.rules import Rule
from mltcp_tools.attach.sources.bursts import PROBE_GAP_S, FlowBursts
from mltcp_tools.attach.sources.messages import Message
from mltcp_tools.attach.sources.metadata import CONFIDENT, Chooser, Metadata
from mltcp_tools.attach.sources.rhythm import Rhythm
from mltcp_tools.backends.base import IterationEvent, Job

_NOTABLE = 0.1
_ENOUGH = 10


class Followed:
    """A job of one rule. job: with the parameters to give it now. owner: uid of its processes."""

    def __init__(self, job: Job, rule: Rule, owner: int) -> None:
        self.rule = rule
        self.owner = owner
        self._chooser = Chooser()
        self._rhythm = Rhythm()
        self._bursts = FlowBursts()
        self._spoken = self._burst = False
        # A job of which nothing is known is its base, but its bursts must be told apart to learn.
        self.job = job
        self._change(job.params.total_bytes, job.params.gap_s or PROBE_GAP_S)

    def hear(self, message: Message) -> None:
        """One of its processes tells an iteration."""
        self._rhythm.add(message)
        self._spoken = True

    def see(self, events: Iterable[IterationEvent]) -> None:
        """Its flows finish bursts."""
        for event in events:
            self._bursts.add(event)
            self._burst = True

    def tell(self, metadata: Metadata, now_s: float) -> None:
        """Another source says what it knows."""
        self._chooser.tell(metadata, now_s)

    def forget(self, pid: int) -> None:
        """The process is no longer of this job."""
        self._rhythm.forget(pid)

    def best(self, now_s: float) -> Metadata | None:
        """What is known of its iterations, by the best source that speaks."""
        return self._chooser.best(now_s)

    def learn(self, now_s: float) -> Job | None:
        """Draw conclusions from what came since the last call; the job when it has changed.

        Bytes and gap of the rule stay as they are. Where the flows' bursts show no rhythm and no
        other source knows one, the job goes back to being its base.
        """
        if self._spoken and (said := self._rhythm.metadata()):
            self._chooser.tell(said, now_s)
        if self._burst:
            best = self._chooser.best(now_s)
            period_s = best.period_s if best and best.source != "flow" else None
            seen = self._bursts.metadata(period_s)
            if seen:
                self._chooser.tell(seen, now_s)
                enough = seen.iterations_seen >= _ENOUGH
                if period_s is None and enough and seen.confidence < CONFIDENT:
                    return self._change(0, PROBE_GAP_S)
        self._spoken = self._burst = False
        best = self._chooser.best(now_s)
        if best is None:  # silence is no reason to forget
            return None
        known = self.job.params
        total = best.bytes_per_iteration or known.total_bytes
        return self._change(total, best.gap_s or known.gap_s)

    def _change(self, total_bytes: int, gap_s: float) -> Job | None:
        """Give the job what was found out, unless the rule fixes it; None when that's no news."""
        rule, before = self.rule, self.job.params
        total_bytes = total_bytes if rule.total_bytes is None else rule.total_bytes
        gap_s = gap_s if rule.gap_s is None else rule.gap_s
        if _near(total_bytes, before.total_bytes) and _near(gap_s, before.gap_s):
            return None
        params = dataclasses.replace(before, total_bytes=total_bytes, gap_s=gap_s)
        self.job = Job(self.job.id, self.job.name, params)
        return self.job


def _near(value: float, before: float) -> bool:
    """Whether a change is too small to be worth one."""
    return value == before or abs(value - before) <= _NOTABLE * before
