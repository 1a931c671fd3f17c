# SPDX-License-Identifier: BSD-2-Clause
"""The rhythm of a job from what the hooks in its processes say: messages in, Metadata out."""

from __future__ import annotations

from collections import deque
from statistics import median

from mltcp_tools.live.sources.messages import Message
from mltcp_tools.live.sources.metadata import Metadata

_KEPT = 64
_ENOUGH = 5


class HookRhythm:
    """Iterations of a job's processes (ranks), the latest of each.

    The period is the time between the starts of neighbouring iterations of one process; the
    median over all processes counts, so that one process can't shift it alone. A process that
    says how long it communicates gives the idle time too, the rest of its period: half of that
    is the gap. Without any that says so, the gap is 0: unknown.
    """

    def __init__(self) -> None:
        self._kept: dict[int, deque[Message]] = {}

    def add(self, message: Message) -> None:
        """One iteration of one process; numbers that go back mean that the loop began anew."""
        kept = self._kept.setdefault(message.pid, deque(maxlen=_KEPT))
        if kept and not (message.number > kept[-1].number and message.begin_s > kept[-1].begin_s):
            kept.clear()
        kept.append(message)

    def forget(self, pid: int) -> None:
        """The process has ended, or is no longer of this job."""
        self._kept.pop(pid, None)

    def metadata(self) -> Metadata | None:
        """Return the iterations by the messages, None with fewer than two of one process."""
        periods, idle = [], []
        for kept in self._kept.values():
            for before, after in zip(kept, list(kept)[1:], strict=False):
                period = (after.begin_s - before.begin_s) / (after.number - before.number)
                periods.append(period)
                if after.busy_s is not None:
                    idle.append(period - after.busy_s)
        if not periods:
            return None
        period = median(periods)
        spread = median(abs(each - period) for each in periods) / period
        return Metadata(
            source="hooks",
            period_s=period,
            bytes_per_iteration=None,  # of a process, not of a flow
            gap_s=max(0.0, median(idle) / 2) if idle else 0.0,
            confidence=max(0.0, 1 - spread) * min(1.0, len(periods) / _ENOUGH),
            iterations_seen=max(map(len, self._kept.values())),
        )
