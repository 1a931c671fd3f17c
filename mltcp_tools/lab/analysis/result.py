# SPDX-License-Identifier: BSD-2-Clause
"""The result of a run, as one document: the schema `mltcp-result/1`.

Times are seconds, numbers of iterations count from 1, ratios and shares are plain numbers, and null
stands for a value that couldn't be computed (`problems` says why). The measures are defined in
metrics.py, the schedules in simulator/schedules.py, the intervals in bootstrap.py; summary.py
computes them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from mltcp_tools.lab.analysis.bootstrap import Estimate
from mltcp_tools.lab.analysis.isolated import Isolated
from mltcp_tools.lab.analysis.metrics import Distribution, Overlap

Document = dict[str, Any]


@dataclass(kw_only=True)
class Times:
    """The durations of iterations and of the communication in them."""

    iteration_s: Distribution | None
    """Iteration times, pooled over jobs and repetitions."""
    communication_s: Distribution | None
    """Communication times per iteration, pooled likewise."""
    settled_mean_s: float | None
    """Mean iteration time from iteration `metrics.SETTLED_FROM` on."""


@dataclass(kw_only=True)
class Relative(Times):
    """Iteration times, also next to the schedules'."""

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
    """The iteration from which the jobs are interleaved (metrics.py); null for never."""

    typical: float | None
    """The median over the repetitions."""
    per_repetition: list[int | None]


@dataclass(kw_only=True)
class ScheduleResult(Relative):
    """The figures that variants and schedules have in common."""

    captured_gain: Estimate | None = None
    """(baseline mean - mean) / (baseline mean - bound mean), same iterations; null for the
    baseline, for variants that were disturbed, and for all where the baseline was disturbed, or is
    within 2 % of the bound. Schedules have no interval."""
    overlap: Overlap | None
    """Share of communication time during which other jobs communicate, too."""
    interleaved_from: Interleaved | None
    means_s: dict[int, float]
    """Repetition -> mean iteration time."""
    jobs: dict[str, JobResult]


@dataclass(kw_only=True)
class LinkResult:
    """The bottleneck during a variant; packets are sums over repetitions."""

    utilisation: float | None
    """Share of its rate that was used, mean over repetitions."""
    sending: float | None
    """Share of its rate that the jobs' bytes used, over the time in which any job communicated."""
    drops: int | None
    packets: int | None


@dataclass(kw_only=True)
class PlannedJob:
    """One job's planned time shift, and how it kept to it."""

    shift_s: float | None
    """The offset of its first slot."""
    period_s: float | None
    """The time from one slot to the next."""
    realigned: int | None
    """The times that it re-aligned."""
    realigned_per_minute: float | None
    waited_s: float | None
    """Mean wait of an iteration for its slot."""


@dataclass(kw_only=True)
class PlanResult:
    """A variant whose jobs keep to planned time shifts (planned.py)."""

    score: float | None
    """The compatibility score over all shared links."""
    bound: float | None
    """A score that no shifts exceed."""
    stretch: float | None
    """The share by which periods are longer than iterations alone."""
    realigned: int | None
    """The times that jobs re-aligned."""
    realigned_per_minute: float | None
    """Per minute and job."""
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
class Disturbed:
    """The disturbance of a variant by other programs and by the host.

    Shares are those of the worst repetition among the shown ones.
    """

    share: float
    """Share of seconds that were disturbed."""
    busiest: float | None
    """Share of its time for which the busiest CPU was in use."""
    skipped: int
    """BPF programs that the kernel skipped, in all shown repetitions."""
    discarded: bool
    """Disturbed in every repetition, so that the variant can't be compared."""
    left_out: int
    """Disturbed repetitions that are left out."""
    again: int
    """Disturbed runs that were repeated."""


@dataclass(kw_only=True)
class VariantResult(ScheduleResult):
    """One variant."""

    cc: str | None
    """The variant's congestion control."""
    link: LinkResult
    cpu_busy: float | None
    """Highest share of the host's CPU time in use, over repetitions."""
    events_per_burst: float | None
    """Iterations that the kernel ended, per burst and flow that was sent; 1 is right."""
    plan: PlanResult | None = None
    base: str | None = None
    """The variant whose congestion control this one builds on."""
    neighbours: dict[str, BulkResult | RequestsResult] = field(default_factory=dict)
    disturbance: Disturbed | None = None
    """Null where nothing was watched."""


@dataclass(kw_only=True)
class AloneResult(Times):
    """The measured variant alone: jobs that have no equal, each run alone."""

    cc: str | None
    """Its congestion control, the baseline's."""


@dataclass(kw_only=True)
class RunResult:
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
    isolated: dict[str, Isolated]
    """Job -> its need with the link to itself, and how it did alone."""
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
    """Sentences on missing parts."""
    warnings: list[str] = field(default_factory=list)
    """Sentences on reasons to doubt the numbers."""
    headline: list[str] = field(default_factory=list)
    """The run in a few sentences."""

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
