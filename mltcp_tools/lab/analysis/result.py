# SPDX-License-Identifier: BSD-2-Clause
"""The result of a run, as one document: the schema `mltcp-result/1`.

Times are seconds, numbers of iterations count from 1, ratios and shares are plain numbers, and null
stands for what couldn't be computed (`problems` says why). The measures are defined in metrics.py,
the schedules in simulator/schedules.py, the intervals in bootstrap.py; summary.py computes them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from mltcp_tools.lab.analysis.bootstrap import Estimate
from mltcp_tools.lab.analysis.isolated import Lone
from mltcp_tools.lab.analysis.metrics import Distribution, Overlap
from mltcp_tools.lab.runs.disturbance import Levels

SCHEMA = "mltcp-result/1"
Document = dict[str, Any]


@dataclass(kw_only=True)
class Spread:
    """The least and the largest of several values."""

    min: float
    max: float


@dataclass(kw_only=True)
class Times:
    """The durations of iterations and of the communication in them."""

    iteration_s: Distribution | None
    """Iteration times, pooled over jobs and repetitions."""
    communication_s: Distribution | None
    """Communication times per iteration, pooled likewise."""


@dataclass(kw_only=True)
class Relative(Times):
    """Iteration times, also next to the schedules'."""

    settled_mean_s: float | None
    """Mean iteration time from iteration `settled_from` on."""
    settled_p99_s: float | None
    """Its 99th percentile."""
    ratio_to_alone: float | None
    """Mean iteration time over the schedule alone's, same iterations."""
    ratio_to_bound: float | None
    """Mean iteration time over the bound's, same iterations."""


@dataclass(kw_only=True)
class JobResult(Relative):
    """One job in a variant or a schedule."""

    overlap: float | None
    """Share of its communication time during which other jobs communicate, too."""


@dataclass(kw_only=True)
class Interleaved:
    """From when on the jobs are interleaved (metrics.py); null where they never are."""

    typical: float | None
    """The median over the repetitions."""
    per_repetition: list[int | None]


@dataclass(kw_only=True)
class Repetition:
    """One repetition of a schedule."""

    repetition: int
    mean_s: float | None
    p99_s: float | None
    settled_mean_s: float | None


@dataclass(kw_only=True)
class ScheduleResult(Relative):
    """The figures that variants and schedules have in common."""

    settled_ratio_to_bound: float | None
    """Mean iteration time over the bound's, from iteration `settled_from` on."""
    captured_gain: Estimate | None = None
    """(baseline mean - mean) / (baseline mean - bound mean), same iterations; null for the
    baseline, for variants that were disturbed, and for all where the baseline was disturbed, or is
    within 2 % of the bound. Schedules have no interval."""
    overlap: Overlap | None
    """Share of communication time during which other jobs communicate, too."""
    interleaved_from: Interleaved | None
    per_repetition: Sequence[Repetition]
    spread_s: Spread | None
    """Of the repetitions' means."""
    jobs: dict[str, JobResult]


@dataclass(kw_only=True)
class Link:
    """The bottleneck during a variant; packets are sums over repetitions."""

    utilisation: float | None
    """Share of its rate that was used, mean over repetitions."""
    sending: float | None
    """The same of the jobs' bytes, over the time in which any job communicated."""
    drops: int | None
    marks: int | None
    packets: int | None
    queue: Queue | None
    """Null where queues weren't seen, as on the testbed."""


@dataclass(kw_only=True)
class Queue:
    """The bytes that waited for the bottleneck or were being sent, over the time for which it was
    busy, means over repetitions.
    """

    mean_bytes: float
    p99_bytes: float


@dataclass(kw_only=True)
class Packets:
    """Packets of the bottleneck, sums over repetitions."""

    drops: int | None
    marks: int | None
    packets: int | None


@dataclass(kw_only=True)
class Kernel:
    """The backend's view of a variant."""

    events: int
    """Iterations it ended."""
    events_per_burst: float | None
    """The same per burst and flow that was sent: 1 where it sees what happens."""
    retransmits: int | None
    """Segments."""
    final_ratio: float | None
    """Mean bytes ratio at the end of an iteration."""


@dataclass(kw_only=True)
class Phase:
    """A span in which the same jobs run (phases.py)."""

    jobs: list[str]
    iteration_s: Distribution | None
    bound_s: float | None
    """The bound's mean over the same iterations."""


@dataclass(kw_only=True)
class Realigned:
    """The jobs' keeping of their time shifts."""

    realigned: int | None
    """The times that jobs re-aligned."""
    realigned_per_minute: float | None
    """The same per minute and job."""
    waited_s: float | None
    """Mean wait of an iteration for its slot."""


@dataclass(kw_only=True)
class _TimeShift:
    shift_s: float | None
    period_s: float | None


@dataclass(kw_only=True)
class PlannedJob(Realigned, _TimeShift):
    """One job's time shifts: when the first begins, how long one is, and how it kept to them."""


@dataclass(kw_only=True)
class _Scores:
    score: float | None
    """The compatibility score over all shared links."""
    worst: float | None
    """The score on the worst one."""
    bound: float | None
    """A score that no shifts exceed."""
    stretch: float | None
    """By what share time shifts are longer than iterations alone."""


@dataclass(kw_only=True)
class PlanResult(Realigned, _Scores):
    """A variant whose jobs keep to planned time shifts (planned.py)."""

    jobs: dict[str, PlannedJob]


@dataclass(kw_only=True)
class Throughput:
    """Bits per second, over repetitions."""

    mean: float
    min: float
    max: float


@dataclass(kw_only=True)
class BulkResult:
    """A neighbour's bulk flow (neighbours.py)."""

    kind: Literal["bulk"] = "bulk"
    cc: str | None
    throughput_bps: Throughput
    ratio_to_base: float | None = None


@dataclass(kw_only=True)
class RequestsResult:
    """A neighbour's requests (neighbours.py)."""

    kind: Literal["requests"] = "requests"
    cc: str | None
    completion_s: Distribution | None
    ratio_to_base: dict[str, float] | None = None
    """Of the mean, p50 and p99."""


@dataclass(kw_only=True)
class Jain:
    """Jain index of the bulk flows' throughput."""

    value: float
    """The mean over repetitions."""
    per_repetition: list[float | None]
    ratio_to_base: float | None = None


@dataclass(kw_only=True)
class Disturbed(Levels):
    """The disturbance of a variant by the host: of what is shown, the repetition with the most, but
    what was skipped in all of them."""

    discarded: bool
    """Disturbed in every repetition, so that the variant can't be compared."""
    left_out: int
    """Disturbed repetitions that are left out."""
    again: int
    """Disturbed runs that were made again."""


@dataclass(kw_only=True)
class _CongestionControl:
    cc: str | None
    """The variant's congestion control."""


@dataclass(kw_only=True)
class VariantResult(ScheduleResult, _CongestionControl):
    """One variant."""

    link: Link
    cpu_busy: float | None
    """Highest share of the host's CPU time in use, over repetitions."""
    kernel: Kernel | None
    phases: list[Phase]
    """Iterations while the same jobs ran; [] where all jobs run all the time."""
    spread_of_completion: Distribution | None
    """Seconds between the first and the last flow of a burst to be done; null where no job has
    several flows."""
    plan: PlanResult | None = None
    base: str | None = None
    """The variant whose congestion control this one builds on."""
    neighbours: dict[str, BulkResult | RequestsResult] = field(default_factory=dict)
    jain: Jain | None = None
    """Null with fewer than two bulk flows."""
    disturbance: Disturbed | None = None
    """Null where nothing was watched."""


@dataclass(kw_only=True)
class AloneResult:
    """The measured variant alone: jobs that have no equal, each run alone."""

    cc: str | None
    """Its congestion control, the baseline's."""
    iteration_s: Distribution | None
    communication_s: Distribution | None
    settled_mean_s: float | None
    link: Packets
    jobs: dict[str, Times]


@dataclass(kw_only=True)
class Result:
    """The result of a run."""

    schema: Literal["mltcp-result/1"] = "mltcp-result/1"
    run: str
    """Name of the run folder."""
    experiment: Document
    """The experiment as run (experiment.yaml), or {}."""
    environment: Document
    """environment.json, or {}."""
    baseline: str | None
    """Name of the variant that others are compared with."""
    settled_from: int
    """First iteration that settled_mean_s and settled_p99_s count."""
    isolated_comm_s: dict[str, float]
    """Job -> communication time per iteration that nothing comes in the way of."""
    lone: dict[str, Lone]
    """Job -> where that comes from, and what the job made of it alone."""
    alone: AloneResult | None
    variants: dict[str, VariantResult]
    """In the experiment's order."""
    schedules: dict[str, ScheduleResult]
    """alone, bound and fair; {} where they can't be computed."""
    speedup: dict[str, dict[str, dict[str, Estimate | None]]]
    """Variant -> other variant -> mean, p99: how many times faster (above 1) or slower the variant
    is than the other, on the iterations both have; only variants that can be compared."""
    failures: list[str] = field(default_factory=list)
    """Sentences on why the evaluation can't be right; there are no captured gains then."""
    problems: list[str] = field(default_factory=list)
    """Sentences on what is missing or damaged."""
    warnings: list[str] = field(default_factory=list)
    """Sentences on what makes the numbers doubtful."""
    missed: list[str] = field(default_factory=list)
    """Sentences on what the experiment expects and didn't come out."""
    headline: list[str] = field(default_factory=list)
    """The run in three sentences."""

    def document(self) -> Document:
        """The result in the types that JSON has."""
        return plain(fields_of(self))


def fields_of(value: Any) -> dict[str, Any]:
    """A dataclass's fields by name."""
    return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}


def plain(document: Mapping[str, object]) -> Document:
    """A document in the types that JSON has; not-a-number becomes None."""
    return {str(key): _plain(each) for key, each in document.items()}


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value):
        return plain(fields_of(value))
    if isinstance(value, Mapping):
        return plain(value)
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return None
    if value is None or isinstance(value, (str, int, float)):
        return value
    return str(value)
