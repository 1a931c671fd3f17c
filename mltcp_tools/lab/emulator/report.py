# SPDX-License-Identifier: BSD-2-Clause
"""The measurements of the emulator: the result document, and lines for people.

The result document is one JSON object:

    schema      "mltcp-emulate/1"
    job         the job's name
    parameters  the JobSpec's fields (cc: as read back from the sockets), host, port, timeout_s,
                trace_s; time_shifts: {period_s, shift_s} or null
    error       null, or one sentence: why the run ended early
    iterations  iteration (from 1), start, end, compute, bytes, bursts: [burst (from 1), start, end,
                bytes, first_end: when the first of its flows was done]; only complete iterations;
                of a job with time shifts also waited: how long it was ready before it communicated,
                drift: how long after it was due it was ready, negative for before, and realigned:
                whether it was too late for this slot and took a later one
    samples     flow, iteration, time, cwnd, ssthresh, rtt_us, retransmits, bytes_acked: the TCP
                state of the client's sockets while bursts are under way; ssthresh 2147483647 means
                not set, retransmits counts since the connection began, bytes_acked since the burst
                began
    summary     iterations, elapsed_s, bytes, retransmits, iteration_s and communication_s (mean,
                p50, p95, p99; null without iterations), goodput_bps (over the time elapsed),
                burst_goodput_bps (over the time spent communicating) and lateness_s (mean, p50,
                p99, max): how much later than planned the bursts began, the emulator's own jitter;
                realignments: how many iterations were realigned, null without time shifts

Times are seconds of CLOCK_MONOTONIC, durations seconds, sizes bytes. `compute` is the planned
compute time. With direction "both", bytes and goodput count one of the two ways.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from mltcp_tools.base.units import format_bytes, format_rate, format_seconds
from mltcp_tools.lab.emulator.time_shift import Begin

SCHEMA = "mltcp-emulate/1"


class BurstRecord(NamedTuple):
    """Times in CLOCK_MONOTONIC seconds; `late_s`: how long after the planned instant it began,
    `first_end`: when the first of its flows was done."""

    burst: int
    start: float
    end: float
    bytes: int
    late_s: float
    first_end: float


class IterationRecord(NamedTuple):
    """Times in CLOCK_MONOTONIC seconds, `compute_s` the planned compute time; `begin`: how its
    communication kept to the job's time shifts, None for a job without."""

    iteration: int
    start: float
    end: float
    compute_s: float
    bursts: tuple[BurstRecord, ...]
    begin: Begin | None = None

    @property
    def communication_s(self) -> float:
        return sum(burst.end - burst.start for burst in self.bursts)

    @property
    def bytes(self) -> int:
        return sum(burst.bytes for burst in self.bursts)


class TcpSample(NamedTuple):
    """TCP state of one flow at one instant; see the module's text for the units."""

    flow: int
    iteration: int
    time: float
    cwnd: int
    ssthresh: int
    rtt_us: int
    retransmits: int
    bytes_acked: int


@dataclass
class ClientResult:
    """Everything one run measured, growing while it runs."""

    job: str
    parameters: dict[str, Any]
    iterations: list[IterationRecord] = field(default_factory=list)
    samples: list[TcpSample] = field(default_factory=list)
    retransmits: int = 0
    error: str | None = None

    def summary(self) -> dict[str, Any]:
        """The summary of the complete iterations, as in the result document."""
        communication = [i.communication_s for i in self.iterations]
        elapsed = self.iterations[-1].end - self.iterations[0].start if self.iterations else 0.0
        size = sum(i.bytes for i in self.iterations)
        late = [burst.late_s for i in self.iterations for burst in i.bursts]
        begins = [i.begin for i in self.iterations if i.begin is not None]
        return {
            "iterations": len(self.iterations),
            "elapsed_s": elapsed,
            "bytes": size,
            "retransmits": self.retransmits,
            "iteration_s": _spread([i.end - i.start for i in self.iterations]),
            "communication_s": _spread(communication),
            "goodput_bps": size * 8 / elapsed if elapsed else None,
            "burst_goodput_bps": size * 8 / sum(communication) if communication else None,
            "lateness_s": _spread(late, ("mean", "p50", "p99", "max")),
            "realignments": sum(each.realigned for each in begins) if begins else None,
        }

    def document(self) -> dict[str, Any]:
        """The result document."""
        return {
            "schema": SCHEMA,
            "job": self.job,
            "parameters": self.parameters,
            "error": self.error,
            "iterations": [
                {
                    "iteration": i.iteration,
                    "start": i.start,
                    "end": i.end,
                    "compute": i.compute_s,
                    "bytes": i.bytes,
                    "bursts": [
                        {
                            "burst": b.burst,
                            "start": b.start,
                            "end": b.end,
                            "bytes": b.bytes,
                            "first_end": b.first_end,
                        }
                        for b in i.bursts
                    ],
                }
                | _kept_slot(i.begin)
                for i in self.iterations
            ],
            "samples": [sample._asdict() for sample in self.samples],
            "summary": self.summary(),
        }


def _kept_slot(begin: Begin | None) -> dict[str, Any]:
    if begin is None:
        return {}
    return {"waited": begin.waited_s, "drift": begin.drift_s, "realigned": begin.realigned}


def _spread(
    values: Sequence[float], names: Sequence[str] = ("mean", "p50", "p95", "p99")
) -> dict[str, float | None]:
    if not values:
        return dict.fromkeys(names)
    known: dict[str, Callable[[], Any]] = {
        "mean": lambda: np.mean(values),
        "max": lambda: max(values),
    }
    return {
        name: float(known[name]() if name in known else np.percentile(values, float(name[1:])))
        for name in names
    }


def iteration_text(iteration: IterationRecord) -> str:
    """A line for people on an iteration that is over."""
    length_s = iteration.end - iteration.start
    return (
        f"iteration {iteration.iteration}: {format_seconds(length_s)}, of which"
        f" {format_seconds(iteration.communication_s)} communicating"
    )


def summary_text(result: ClientResult) -> str:
    """The summary for people, a few lines."""
    summary = result.summary()
    if not summary["iterations"]:
        return "No iteration was completed."
    both = ", each way" if result.parameters["direction"] == "both" else ""
    lines = [
        f"{summary['iterations']} iterations in {summary['elapsed_s']:.2f} s, "
        f"{format_bytes(summary['bytes'])}{both}, {format_rate(summary['goodput_bps'])} overall, "
        f"{format_rate(summary['burst_goodput_bps'])} within bursts, "
        f"{summary['retransmits']} retransmits, congestion control {result.parameters['cc']}"
    ]
    for key, name in (("iteration_s", "iteration"), ("communication_s", "communication")):
        numbers = ", ".join(f"{k} {format_seconds(v)}" for k, v in summary[key].items())
        lines.append(f"{name:>13}: {numbers}")
    if (realigned := summary["realignments"]) is not None:
        per_minute = realigned * 60 / summary["elapsed_s"]
        lines.append(f"{'time_shifts':>13}: {realigned} re-alignments, {per_minute:.3g} per minute")
    return "\n".join(lines)
