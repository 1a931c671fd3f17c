# SPDX-License-Identifier: BSD-2-Clause
"""The flow simulator (flow.h and the C files beside it) called from Python, through cffi."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mltcp_tools.kernel.native.extension import declarations, extension
from mltcp_tools.lab.planning import filling

NANOSECONDS = 1_000_000_000


@functools.cache
def _library() -> tuple[Any, Any]:
    folder = Path(__file__).resolve().parent
    return extension(
        "flows", declarations(folder / "flow.h"), '#include "flow.h"\n', folder, filling.FOLDER
    )


@dataclass(frozen=True)
class Rule:
    """The rule by which jobs share a link that is full.

    A job's weight is (intercept + slope x progress)^power, where progress is the
    share of its burst that is sent, in `levels` steps. loss: what a full link loses, times the
    power `crowd` of the flows on it per packet that it holds. luck: standard deviation of the
    logarithm by which the weight of a burst of one connection differs; of n, by the square root of
    n less; lasting: for how many bursts one draw of it holds.
    """

    name: str = "fair"
    intercept: float = 1.0
    slope: float = 0.0
    power: float = 1.0
    levels: int = 1
    loss: float = 0.0
    crowd: float = 2.0
    luck: float = 0.0
    lasting: int = 1


@dataclass(frozen=True)
class Iteration:
    """`compute_s` of computing, then `size` bytes over every link of `crossings` (link number ->
    how often each byte crosses it) at one speed."""

    compute_s: float
    size: int
    crossings: dict[int, float]


@dataclass(frozen=True)
class FlowJob:
    """A periodic job with its links.

    iterations: until it is done. start_s: when it begins. compute_s: seconds of each iteration,
    taken again from the first when used up; None: the iteration's own. lag_s: from a burst's begin
    until it has its speed. flows: connections that carry a burst.
    """

    iteration: Iteration
    iterations: int
    start_s: float = 0.0
    compute_s: npt.NDArray[np.float64] | None = None
    lag_s: float = 0.0
    seed: int = 1
    flows: int = 1


@dataclass(frozen=True)
class Stats:
    """Of a job's iterations that are done: their number, and seconds that they took together."""

    done: int
    sum_s: float

    @property
    def mean_s(self) -> float:
        """Mean iteration time, NaN before the first one is done."""
        return self.sum_s / self.done if self.done else math.nan


class FlowSimulator:
    """Jobs on links, in virtual time; times are seconds since the start."""

    def __init__(
        self, rates_bps: Sequence[float], rule: Rule, *, packets: Sequence[float] | None = None
    ) -> None:
        """Links of these rates that carry these numbers of packets when full (None: any)."""
        self._lib, self._ffi = _library()
        self._rule = rule
        names = ("intercept", "slope", "power", "loss", "crowd", "levels")
        self._flow = self._ffi.gc(
            self._lib.flow_new(
                len(rates_bps),
                self._ffi.new("double[]", [rate / 8e9 for rate in rates_bps]),
                self._ffi.new("double[]", packets or [math.inf] * len(rates_bps)),
                self._ffi.new("struct flow_rule *", {name: getattr(rule, name) for name in names}),
            ),
            self._lib.flow_free,
        )

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return float(self._lib.flow_now(self._flow)) / NANOSECONDS

    def add(self, job: FlowJob) -> int:
        """Start the job at its start, or now if that has passed; returns its number."""
        new, own = self._ffi.new, job.iteration
        rows = np.array([own.compute_s]) if job.compute_s is None else job.compute_s
        arrays = {
            "compute_ns": new("uint64_t[]", [round(each * 1e9) for each in rows.tolist()]),
            "link": new("uint32_t[]", list(own.crossings)),
            "crossings": new("double[]", list(own.crossings.values())),
        }
        described = arrays | {
            "rows": len(rows),
            "bytes": own.size,
            "links": len(own.crossings),
            "iterations": job.iterations,
            "start_ns": _ns(job.start_s),
            "lag_ns": _ns(job.lag_s),
            "seed": job.seed,
            "luck": self._rule.luck / math.sqrt(job.flows),
            "lasting": self._rule.lasting,
            "flows": job.flows,
        }
        return int(self._lib.flow_add(self._flow, new("struct flow_job *", described)))

    def remove(self, job: int) -> None:
        """Take a job away, done or not; its number may be given to another."""
        self._lib.flow_remove(self._flow, job)

    def time_shifts(self, job: int, period_s: float, due_s: float, slack_s: float) -> None:
        """Give the job time shifts from its next iteration on; a `period_s` of 0 removes them.

        due_s: its first slot. slack_s: how late a burst may be and still take its slot.
        """
        self._lib.flow_time_shifts(self._flow, job, _ns(period_s), _ns(due_s), _ns(slack_s))

    def run(self, until_s: float) -> int | None:
        """Go on until then, or until a job is done: its number, or None."""
        done = int(self._lib.flow_run(self._flow, _ns(until_s)))
        return None if done < 0 else done

    def stats(self, job: int) -> Stats:
        """Return the job's statistics until now."""
        found = self._ffi.new("struct flow_stats *")
        self._lib.flow_stats(self._flow, job, found)
        return Stats(int(found.done), found.sum_ns / NANOSECONDS)

    def lost(self, job: int, own: Iteration) -> dict[int, float]:
        """Seconds that the job's bursts took longer than alone, by the link that was full; own: the
        job's iteration."""
        found = self._ffi.new("double[]", max(1, len(own.crossings)))
        self._lib.flow_lost(self._flow, job, found)
        return {
            link: found[n] / NANOSECONDS for n, link in enumerate(own.crossings) if found[n] > 0
        }


def _ns(seconds: float) -> int:
    return min(round(seconds * NANOSECONDS), (1 << 63) - 1)
