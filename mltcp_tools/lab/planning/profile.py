# SPDX-License-Identifier: BSD-2-Clause
"""The profile of a job's traffic in one iteration: a piecewise-constant rate (Cassini, section 3).

An iteration begins where a job begins to compute; times within it are seconds from there. A link
carries as much in one direction as in the other, so what a job sends there and what comes back are
two rates that are never added up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mltcp_tools.base.errors import UsageError
from mltcp_tools.base.units import format_rate

Floats = npt.NDArray[np.float64]

# Phases written in milliseconds may miss the period's end by their rounding.
_SLACK = 1e-6
# What a measured burst may be faster than its link: by what a shaper lets through at once.
_BURST = 0.1


@dataclass(frozen=True)
class Phase:
    """Communication at `rate_bps` bits per second from `start_s` on, for `duration_s` seconds."""

    start_s: float
    duration_s: float
    rate_bps: float

    @property
    def end_s(self) -> float:
        """Return its end, seconds from the start of the iteration."""
        return self.start_s + self.duration_s

    @property
    def bytes(self) -> float:
        """Return the bytes that it carries."""
        return self.rate_bps * self.duration_s / 8


@dataclass(frozen=True)
class Profile:
    """A job: its iteration time in seconds and its phases, in order and apart from each other.

    phases: in one direction of the job's path. back: in the other, empty where hardly anything
    goes that way. Raises UsageError where these make no sense: times or rates that are negative or
    no numbers, phases of one direction that overlap or reach beyond the iteration, or an iteration
    that carries nothing.
    """

    name: str
    period_s: float
    phases: tuple[Phase, ...]
    back: tuple[Phase, ...] = ()

    def __post_init__(self) -> None:
        if not (math.isfinite(self.period_s) and self.period_s > 0):
            raise self._error(f"its iteration must take more than 0 s, not {self.period_s} s")
        for phases in (self.phases, self.back):
            self._check(phases)
        if not self.bytes > 0:
            raise self._error("it sends zero bytes, so there is nothing to plan")

    def _check(self, phases: tuple[Phase, ...]) -> None:
        """Raise UsageError for phases of one direction that can't be."""
        end_s = 0.0
        for number, phase in enumerate(phases, 1):
            values = (phase.start_s, phase.duration_s, phase.rate_bps)
            if not all(math.isfinite(value) and value >= 0 for value in values):
                raise self._error(f"phase {number} has a negative or infinite time or rate")
            if phase.start_s < end_s - _SLACK * self.period_s:
                raise self._error(
                    f"phase {number} begins at {phase.start_s:.6g} s, before the previous one"
                    f" ends at {end_s:.6g} s"
                )
            end_s = phase.end_s
        if end_s > self.period_s * (1 + _SLACK):
            raise self._error(
                f"its phases end at {end_s:.6g} s, after the iteration of {self.period_s:.6g} s"
            )

    @property
    def bytes(self) -> float:
        """Bytes per iteration, in both directions."""
        return sum(phase.bytes for phase in (*self.phases, *self.back))

    @property
    def communication_s(self) -> float:
        """Seconds per iteration in which it communicates, in whichever direction."""
        busy_s = reached_s = 0.0
        for phase in sorted((*self.phases, *self.back), key=lambda each: each.start_s):
            if phase.rate_bps > 0:
                busy_s += max(0.0, phase.end_s - max(phase.start_s, reached_s))
                reached_s = max(reached_s, phase.end_s)
        return busy_s

    def too_fast(self, capacity_bps: float) -> list[str]:
        """Sentences on phases that are faster than a link of `capacity_bps` bit/s can carry."""
        return [
            f"Job {self.name}: phase {number}{way} has {format_rate(phase.rate_bps)}, more than the"
            f" link's {format_rate(capacity_bps)}; it isn't the traffic of one direction of that"
            " link."
            for phases, way in ((self.phases, ""), (self.back, " back"))
            for number, phase in enumerate(phases, 1)
            if phase.rate_bps > capacity_bps * (1 + _BURST)
        ]

    def demand(self, steps: int, period_s: float | None = None, back: bool = False) -> Floats:
        """The mean rate in bit/s in each of `steps` equal parts of an iteration, one direction's.

        period_s: how long the iteration is made by waiting at its end; the profile's own if None.
        back: of the other direction.
        """
        width_s = (self.period_s if period_s is None else period_s) / steps
        # Bits sent up to each edge; their differences are exact however an edge cuts a phase.
        times = [0.0]
        bits = [0.0]
        for phase in self.back if back else self.phases:
            times += [phase.start_s, phase.end_s]
            bits += [bits[-1], bits[-1] + phase.bytes * 8]
        sent = np.interp(np.arange(steps + 1) * width_s, times, bits)
        return np.asarray(np.diff(sent) / width_s, dtype=np.float64)

    def _error(self, complaint: str) -> UsageError:
        return UsageError(f"Job {self.name}: {complaint}.")


def require_jobs(profiles: Iterable[Profile]) -> tuple[Profile, ...]:
    """The profiles as a tuple; raises UsageError without any, or where two share a name."""
    found = tuple(profiles)
    if not found:
        raise UsageError("There is no job to plan for.")
    names = [profile.name for profile in found]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"Two jobs are called {name!r}; give each its own name.")
    return found
