# SPDX-License-Identifier: BSD-2-Clause
"""A job's time shifts: the instants at which its communication is due, and how it keeps to them.

This is what an agent of Cassini does on a job's host (Rajasekaran et al., NSDI 2024): it can delay
a communication, never hasten one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from mltcp_tools.base.errors import UsageError

REALIGN = 0.05
"""Share of a slot that a communication may be late, before the job takes another slot."""


@dataclass(frozen=True)
class TimeShift:
    """The times at which a job's iterations are due; seconds. Raises UsageError where that makes no
    sense.

    The first one is due `shift_s` after the start that all jobs have in common, the others each
    `period_s` after the one before.
    """

    period_s: float
    shift_s: float = 0.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.period_s) and self.period_s > 0):
            raise UsageError(f"A slot must be more than 0 s, not {self.period_s}.")
        if not (math.isfinite(self.shift_s) and self.shift_s >= 0):
            raise UsageError(f"A shift must be 0 s or more, not {self.shift_s}.")

    def first(self, common_s: float, ready_s: float) -> float:
        """Return the start of the first iteration of a job that is ready at `ready_s`.

        common_s: the start that all jobs have in common, on the same clock.
        """
        due_s = common_s + self.shift_s
        missed = max(0, math.ceil((ready_s - due_s) / self.period_s))
        return due_s + missed * self.period_s


class Begin(NamedTuple):
    """The start of a communication, and how long the job has waited for it; `drift_s`: how long
    after it was due the job was ready for it (negative: before); `realigned`: whether it was too
    late for this slot. Seconds."""

    at_s: float
    waited_s: float
    drift_s: float
    realigned: bool


class Pace:
    """Says when each communication of a job begins, the first of which is due at `due_s`."""

    def __init__(self, time_shifts: TimeShift, due_s: float) -> None:
        self._time_shifts = time_shifts
        self._due_s = due_s

    def begin(self, ready_s: float) -> Begin:
        """The next communication, for which the job is ready at `ready_s`.

        One that is early waits until it is due. One that is late begins at once, or where it is
        later than the drift allowed, when the next one is due.
        """
        period_s = self._time_shifts.period_s
        drift_s = ready_s - self._due_s
        realigned = drift_s > REALIGN * period_s
        if realigned:
            self._due_s += math.ceil(drift_s / period_s) * period_s
        at_s = max(ready_s, self._due_s)
        self._due_s += period_s
        return Begin(at_s, at_s - ready_s, drift_s, realigned)
