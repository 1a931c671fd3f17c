# SPDX-License-Identifier: BSD-2-Clause
"""Checks of a run's numbers: errors (`failures`), and reasons for doubt (`warnings_of`).

The schedule alone limits every job: no congestion control carries bytes faster than the link. The
bound also limits the mean of equal jobs; with unequal ones a variant that prefers the short ones
can undercut first come, first served. A variant that is faster shows a mistake in the bound, the
bottleneck or the clock, unless its jobs sent fewer bytes.

The link, not the host, must limit the jobs: where an isolated job doesn't fill FILLS of the link
although a CPU is almost fully used while it sends, variants measure the host.
"""

from __future__ import annotations

from collections.abc import Mapping

from mltcp_tools.base.units import counted
from mltcp_tools.lab.analysis.bootstrap import MIN_ROOM
from mltcp_tools.lab.analysis.isolated import Isolated, findings, measured_once
from mltcp_tools.lab.analysis.result import RunResult, VariantResult
from mltcp_tools.lab.experiments.variants import ALONE
from mltcp_tools.lab.runs.disturbance import BUSY_CPU
from mltcp_tools.lab.runs.run import Run

TOLERANCE = 0.01
"""The share by which a variant may be faster: timestamps, and the bottleneck's bucket of 20
KiB."""
FILLS = 0.8
"""Share of the link that an isolated job's best iterations must fill."""
BUSY_PROCESSORS = 0.7
"""CPUs in use while it sends, from which on they limit it: the work of one flow is hardly ever
spread over several."""
FULL_CORE = 0.85
"""Share of its time in use from which on a CPU counts as full."""
FEW_ITERATIONS = 40
MANY_REALIGNED = 0.1


def failures(
    run: Run, variants: Mapping[str, VariantResult], isolated: Mapping[str, Isolated]
) -> list[str]:
    """A sentence for each variant that is faster than possible, and for each isolated job that
    the host kept from filling the link."""
    return [*_too_fast(run, variants), *_host_limits(run, isolated)]


def _host_limits(run: Run, isolated: Mapping[str, Isolated]) -> list[str]:
    rows = run.variants[run.variants["variant"] == ALONE]
    busy, cpus = rows["cpu_busy"].mean(), run.environment.get("cpus")
    alone = run.iterations[run.iterations["variant"] == ALONE]
    if run.environment.get("simulated") or not isinstance(cpus, int) or not busy > 0:
        return []
    if alone.empty:
        return []
    sending_s, spans_s = alone["comm_s"].sum(), (alone["end_s"] - alone["start_s"]).sum()
    used = min(float(cpus), busy * cpus * spans_s / sending_s) if sending_s > 0 else 0.0
    return [
        f"The host, not the link, limits the jobs: {job} alone filled"
        f" {each.alone_s / each.best_s:.0%} of the link at best ({FILLS:.0%} is required) and used"
        f" {used:.1f} of {cpus} CPUs while it sent; turn on the link's `offloads` with a queue of"
        " 136 KiB or more, lower its rate, or use a VM in virtual time."
        for job, each in measured_once(isolated)
        if each.best_s and each.alone_s < FILLS * each.best_s and used >= BUSY_PROCESSORS
    ]


def _too_fast(run: Run, variants: Mapping[str, VariantResult]) -> list[str]:
    named = run.experiment.jobs
    equal = len({named[job].demand() for job in run.job_names}) == 1
    sentences = []
    for variant, entry in variants.items():
        if _sends_less(run, variant):
            continue
        for schedule, ratio in (
            ("each job alone", entry.ratio_to_alone),
            ("the bound", entry.ratio_to_bound if equal else None),
        ):
            if ratio is not None and ratio < 1 - TOLERANCE:
                sentences.append(
                    f"The evaluation failed: variant {variant} took {ratio:.3f} times as long as"
                    f" {schedule}, which nothing can undercut; check the bottleneck's rate and the"
                    " hosts' clocks."
                )
                break
    return sentences


def _sends_less(run: Run, variant: str) -> bool:
    """Return whether jobs of the variant sent fewer bytes than they have, as those do that
    compress."""
    rows = run.iterations[run.iterations["variant"] == variant]
    sent = rows.groupby("job", observed=True)["bytes"].mean()
    return any(
        size < run.experiment.jobs[str(name)].bytes * (1 - TOLERANCE) for name, size in sent.items()
    )


def warnings_of(run: Run, result: RunResult) -> list[str]:
    """Sentences on a busy host, jobs that lose much alone, and the like; the testbed's own first.

    The result's own warnings needn't be filled in yet.
    """
    noted = run.environment.get("warnings")
    return [
        *(map(str, noted) if isinstance(noted, list) else ()),
        *_busy(run),
        *_full_core(result),
        *_skipped(result),
        *findings(run, result.isolated),
        *_no_room(result),
        *_no_jitter(run),
        *_few(result),
        *_undetected(result),
        *_missed_slots(result),
    ]


def _busy(run: Run) -> list[str]:
    busy = run.variants.loc[run.variants["cpu_busy"] > BUSY_CPU, "variant"].unique()
    if not len(busy):
        return []
    return [
        f"The CPUs were more than {BUSY_CPU:.0%} busy in {', '.join(busy)}: the host may have"
        " limited the jobs; close other programs, or lower the link's rate."
    ]


def host_limits(entry: VariantResult) -> bool:
    """Return whether one CPU was full in the variant while the link wasn't: that CPU then limits
    the jobs, however idle the others are."""
    busiest = entry.disturbance.busiest if entry.disturbance else None
    sending = entry.link.sending
    return busiest is not None and busiest >= FULL_CORE and sending is not None and sending < FILLS


def _full_core(result: RunResult) -> list[str]:
    return [
        f"In variant {variant} a CPU was {entry.disturbance.busiest:.0%} busy, and the jobs filled"
        f" {entry.link.sending:.0%} of the link while any of them sent ({FILLS:.0%} is required):"
        " the host, not the link, was the bottleneck."
        for variant, entry in result.variants.items()
        if host_limits(entry) and entry.disturbance
    ]


def _skipped(result: RunResult) -> list[str]:
    return [
        f"In variant {variant} this kernel skipped BPF programs at least"
        f" {counted(entry.disturbance.skipped, 'time')}: each time a flow may have sent a burst"
        " without pacing, so the variant looks worse than on other kernels (bpf/README.md)."
        for variant, entry in result.variants.items()
        if entry.disturbance and entry.disturbance.skipped
    ]


def _no_room(result: RunResult) -> list[str]:
    bound = result.schedules.get("bound")
    baseline = result.variants.get(result.baseline or "")
    if not bound or not baseline:
        return []
    ratio = baseline.ratio_to_bound
    if ratio is not None and ratio < 1 + MIN_ROOM:
        return [
            f"The baseline is within {MIN_ROOM:.0%} of the bound ({ratio:.3f} times), so there is"
            " almost nothing to gain, and no captured gain is given."
        ]
    return []


def _no_jitter(run: Run) -> list[str]:
    rows = run.iterations[run.iterations["variant"] != ALONE]
    spread = rows.groupby(["variant", "repetition", "job"])["compute_s"].agg(
        ["std", "mean", "count"]
    )
    spread = spread[(spread["count"] >= 10) & (spread["mean"] > 0)]
    if len(spread) and (spread["std"] / spread["mean"]).max() < 0.005:
        return [
            "The compute times don't vary: jobs that happen not to collide stay apart under any"
            " congestion control, so variants can look interleaved by chance."
        ]
    return []


def _few(result: RunResult) -> list[str]:
    few = []
    for variant, entry in result.variants.items():
        times_of_jobs = [job.iteration_s for job in entry.jobs.values()]
        if times_of_jobs and min(times.count for times in times_of_jobs if times) < FEW_ITERATIONS:
            few.append(variant)
    if not few:
        return []
    return [
        f"Fewer than {FEW_ITERATIONS} iterations per job in {', '.join(few)}: percentiles and"
        " intervals are rough."
    ]


def _undetected(result: RunResult) -> list[str]:
    sentences = []
    for variant, entry in result.variants.items():
        seen = entry.events_per_burst
        if seen is not None and not 0.9 <= seen <= 1.1:
            sentences.append(
                f"In variant {variant} the kernel detected {seen:.2f} iterations per burst; 1 is"
                " right."
            )
    return sentences


def _missed_slots(result: RunResult) -> list[str]:
    sentences = []
    for variant, entry in result.variants.items():
        realigned = entry.plan.realigned if entry.plan else None
        iterations = entry.iteration_s.count if entry.iteration_s else None
        if realigned and iterations and realigned > MANY_REALIGNED * iterations:
            sentences.append(
                f"In variant {variant} {realigned} of {iterations} iterations missed their slot,"
                " and each waited for a later one: the jobs vary more than the plan allows; more"
                " `room` gives longer periods and fewer missed slots."
            )
    return sentences
