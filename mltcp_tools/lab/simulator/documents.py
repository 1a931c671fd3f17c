# SPDX-License-Identifier: BSD-2-Clause
"""The result of a simulation, as the emulator would report it."""

from __future__ import annotations

from dataclasses import asdict
from itertools import islice
from typing import Any

from mltcp_tools.kernel.backends.base import IterationEvent
from mltcp_tools.kernel.native.uapi import from_fixed
from mltcp_tools.lab.emulator.job import JobSpec, compute_times
from mltcp_tools.lab.emulator.report import BurstRecord, ClientResult, IterationRecord, TcpSample
from mltcp_tools.lab.emulator.time_shift import Pace
from mltcp_tools.lab.experiments.tasks import ClientTask
from mltcp_tools.lab.simulator import library
from mltcp_tools.lab.simulator.library import Structs


def document_of(
    task: ClientTask, number: int, result: library.SimulationResult, start: float
) -> dict[str, Any]:
    """The result document of a task, which was job `number` of a run that began at `start` s."""
    report = ClientResult(task.name, asdict(task.spec))
    bursts = result.bursts[number]
    if task.spec.pattern is not None:
        report.iterations += _of_ranks(task.spec, bursts, start)
    else:
        report.iterations += _iterations(task.spec, bursts, start)
    samples = result.samples[result.samples["job"] == number]
    report.samples += [_sample(sample, start) for sample in samples]
    return report.document()


def _of_ranks(spec: JobSpec, bursts: Structs, start: float) -> list[IterationRecord]:
    iterations = []
    began = start + spec.start_delay_s
    for number, times in enumerate(bursts, 1):
        # A rank may send before the slowest one is done with the iteration before.
        first, first_end, end = (
            max(began, start + float(times[name]) * 1e-9)
            for name in ("start_ns", "first_end_ns", "end_ns")
        )
        burst = BurstRecord(1, first, end, sum(spec.shares(1)), 0.0, first_end)
        iterations.append(IterationRecord(number, began, end, first - began, (burst,)))
        began = end
    return iterations


def _iterations(spec: JobSpec, bursts: Structs, start: float) -> list[IterationRecord]:
    """Return the iterations that are complete."""
    iterations: list[IterationRecord] = []
    time_shifts, each_s = spec.time_shifts, spec.compute_s / spec.bursts
    began = (
        spec.start_delay_s if time_shifts is None else time_shifts.first(0.0, spec.start_delay_s)
    )
    began += start
    pace = None if time_shifts is None else Pace(time_shifts, began + each_s)
    count = len(bursts) // spec.bursts
    for number, compute_s in enumerate(islice(compute_times(spec), count)):
        of_it = bursts[number * spec.bursts : (number + 1) * spec.bursts]
        if not of_it["end_ns"][-1]:
            break
        own = tuple(_burst(place, times, start) for place, times in enumerate(of_it, 1))
        begin = pace.begin(began + compute_s / spec.bursts) if pace is not None else None
        iterations.append(IterationRecord(number + 1, began, own[-1].end, compute_s, own, begin))
        began = own[-1].end
    return iterations


def _burst(number: int, times: Any, start: float) -> BurstRecord:
    return BurstRecord(
        burst=number,
        start=start + float(times["start_ns"]) * 1e-9,
        end=start + float(times["end_ns"]) * 1e-9,
        bytes=int(times["bytes"]),
        late_s=0.0,
        first_end=start + float(times["first_end_ns"]) * 1e-9,
    )


def _sample(sample: Any, start: float) -> TcpSample:
    return TcpSample(
        flow=int(sample["flow"]),
        iteration=int(sample["iteration"]),
        time=start + float(sample["time_ns"]) * 1e-9,
        cwnd=int(sample["cwnd"]),
        ssthresh=int(sample["ssthresh"]),
        rtt_us=int(sample["srtt_us"]),
        retransmits=int(sample["retransmits"]),
        bytes_acked=int(sample["acked"]),
    )


def event_of(event: Any, start: float) -> IterationEvent:
    """The event without what only a socket has: addresses, and a cookie."""
    return IterationEvent(
        job_id=int(event["job"]) + 1,
        cookie=0,
        local_addr="",
        local_port=0,
        remote_addr="",
        remote_port=0,
        iteration=int(event["iteration"]),
        first_ack_s=start + float(event["first_ack_ns"]) * 1e-9,
        last_ack_s=start + float(event["last_ack_ns"]) * 1e-9,
        bytes=int(event["bytes"]),
        retransmits=int(event["retransmits"]),
        srtt_us=int(event["srtt_us"]),
        cwnd=int(event["cwnd"]),
        ratio=from_fixed(int(event["ratio"])),
    )
