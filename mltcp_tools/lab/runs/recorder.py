# SPDX-License-Identifier: BSD-2-Clause
"""The tables of a run folder: rows from the emulators' results, written as CSV.

Seconds (`*_s`) count from the instant the variant's jobs started in that repetition. The columns
are those of COLUMNS in base/run_tables.py. TCP samples are kept for the first and last TRACED
iterations of each job only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mltcp_tools.base.run_tables import COLUMNS
from mltcp_tools.kernel.backends.base import IterationEvent
from mltcp_tools.lab.experiments.tasks import ClientTask
from mltcp_tools.lab.runs.folder import RARE, write_tables

TRACED = 3


@dataclass(frozen=True)
class LinkCounters:
    """The bytes and packets that one link or several carried, dropped and marked, on the wire."""

    bytes: int = 0
    packets: int = 0
    drops: int = 0
    marks: int = 0

    def __add__(self, other: LinkCounters) -> LinkCounters:
        return LinkCounters(
            self.bytes + other.bytes,
            self.packets + other.packets,
            self.drops + other.drops,
            self.marks + other.marks,
        )

    def __sub__(self, other: LinkCounters) -> LinkCounters:
        return LinkCounters(
            self.bytes - other.bytes,
            self.packets - other.packets,
            self.drops - other.drops,
            self.marks - other.marks,
        )


class Tables:
    """Collects rows; `write` puts all tables into a folder."""

    def __init__(self) -> None:
        self._rows: dict[str, list[dict[str, Any]]] = {name: [] for name in COLUMNS}

    def add_variant(
        self,
        variant: str,
        repetition: int,
        position: int,
        duration: float,
        counters: LinkCounters,
        cpu_busy: float | None = None,
    ) -> None:
        """Add a variant that ran. position: in its repetition, from 1. duration: seconds. cpu_busy:
        share of all CPUs' time in use; None in virtual time."""
        row = {
            "variant": variant,
            "repetition": repetition,
            "order": position,
            "duration_s": duration,
        }
        row |= {f"link_{name}": value for name, value in asdict(counters).items()}
        row |= {} if cpu_busy is None else {"cpu_busy": cpu_busy}
        self._rows["variants"].append(row)

    def add_disturbance(
        self, variant: str, repetition: int, attempt: int, rows: Iterable[dict[str, Any]]
    ) -> None:
        """Add the seconds of one run of a variant (`rows_of` in runs/disturbance.py)."""
        key = {"variant": variant, "repetition": repetition, "attempt": attempt}
        self._rows["disturbance"] += [key | row for row in rows]

    def drop(self, variant: str, repetition: int) -> None:
        """Forget a variant's run, which is repeated; its disturbance stays."""
        for name, rows in self._rows.items():
            if name != "disturbance":
                rows[:] = [
                    r for r in rows if (r["variant"], r["repetition"]) != (variant, repetition)
                ]

    def add_job(
        self,
        variant: str,
        repetition: int,
        start: float,
        task: ClientTask,
        document: dict[str, Any],
    ) -> None:
        """Add a client's result document; `start` is the variant's start (CLOCK_MONOTONIC)."""
        key = {"variant": variant, "repetition": repetition, "job": task.name}
        iterations = document["iterations"]
        watched = _watched(document["samples"])
        for iteration in iterations:
            number, bursts = iteration["iteration"], iteration["bursts"]
            self._rows["iterations"].append(
                key
                | {
                    "iteration": number,
                    "start_s": iteration["start"] - start,
                    "end_s": iteration["end"] - start,
                    "compute_s": iteration["compute"],
                    "comm_s": sum(burst["end"] - burst["start"] for burst in bursts),
                    "bytes": iteration["bytes"],
                    "waited_s": iteration.get("waited", 0.0),
                    "realigned": int(iteration.get("realigned", False)),
                    "rtt_us": watched.get(number, (None, None))[0],
                    "retransmits": watched.get(number, (None, None))[1],
                }
            )
            for burst in bursts:
                times = {"start_s": burst["start"] - start, "end_s": burst["end"] - start}
                times["first_end_s"] = burst["first_end"] - start
                row = {"iteration": number, "burst": burst["burst"], "bytes": burst["bytes"]}
                self._rows["bursts"].append(key | row | times)
        last = iterations[-1]["iteration"] if iterations else 0
        for sample in document["samples"]:
            if sample["iteration"] <= TRACED or last - TRACED < sample["iteration"] <= last:
                row = {name: value for name, value in sample.items() if name != "time"}
                shares = task.spec.shares((sample["iteration"] - 1) * task.spec.bursts + 1)
                # The flows back, of a job that sends both ways, are numbered after those there.
                total = shares[sample["flow"] % len(shares)]
                row |= {"time_s": sample["time"] - start, "burst_bytes": total}
                self._rows["samples"].append(key | row)

    def add_neighbour(
        self,
        variant: str,
        repetition: int,
        start: float,
        task: ClientTask,
        document: dict[str, Any],
    ) -> None:
        """Add a neighbour's result document: its requests, or how far its bulk flow came."""
        key = {"variant": variant, "repetition": repetition, "neighbour": task.name}
        if not task.trace_ms:
            self._rows["requests"] += [
                key
                | {
                    "request": iteration["iteration"],
                    "start_s": iteration["bursts"][0]["start"] - start,
                    "end_s": iteration["end"] - start,
                    "bytes": iteration["bytes"],
                }
                for iteration in document["iterations"]
            ]
        self._rows["bulk"] += [
            key
            | {
                "time_s": sample["time"] - start,
                "bytes": (sample["iteration"] - 1) * task.spec.bytes_per_iteration
                + sample["bytes_acked"],
                "cwnd": sample["cwnd"],
                "rtt_us": sample["rtt_us"],
                "retransmits": sample["retransmits"],
            }
            for sample in document["samples"]
        ]

    def add_events(
        self,
        variant: str,
        repetition: int,
        start: float,
        events: Iterable[tuple[str, int, IterationEvent]],
        documents: dict[str, dict[str, Any]],
    ) -> None:
        """Add the kernel's events (job, flow, event), each with the iteration it fell into.

        That iteration is the job's, found by the time of the first ACK: with several bursts an
        iteration has several events per flow.
        """
        starts = {
            job: [iteration["start"] for iteration in document["iterations"]]
            for job, document in documents.items()
        }
        for job, flow, event in events:
            number = sum(begin <= event.first_ack_s for begin in starts.get(job, ()))
            self._rows["flow_events"].append(
                {
                    "variant": variant,
                    "repetition": repetition,
                    "job": job,
                    "flow": flow,
                    "back": 0,
                    "iteration": number or event.iteration,
                    "first_ack_s": event.first_ack_s - start,
                    "last_ack_s": event.last_ack_s - start,
                    "bytes": event.bytes,
                    "retransmits": event.retransmits,
                    "srtt_us": event.srtt_us,
                    "cwnd": event.cwnd,
                    "ratio": event.ratio,
                }
            )

    def write(self, folder: Path) -> None:
        """Write every table; of those that most runs don't have, only those with rows."""
        write_tables(
            folder, {name: rows for name, rows in self._rows.items() if rows or name not in RARE}
        )


def _watched(samples: Iterable[Mapping[str, Any]]) -> dict[int, tuple[float, int]]:
    """Iteration -> mean RTT in microseconds and segments retransmitted, from a job's samples.

    samples: in the order of their times; their `retransmits` count from the flow's beginning.
    """
    rtts: dict[int, list[int]] = {}
    retransmits: dict[int, int] = {}
    before: dict[int, int] = {}
    for sample in samples:
        number, flow, count = sample["iteration"], sample["flow"], sample["retransmits"]
        rtts.setdefault(number, []).append(sample["rtt_us"])
        retransmits[number] = retransmits.get(number, 0) + count - before.get(flow, 0)
        before[flow] = count
    return {number: (sum(each) / len(each), retransmits[number]) for number, each in rtts.items()}
