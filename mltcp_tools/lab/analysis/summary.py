# SPDX-License-Identifier: BSD-2-Clause
"""Computes the result of a run (result.py) from its tables."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from mltcp_tools.lab.analysis import bootstrap, metrics
from mltcp_tools.lab.analysis.bootstrap import Estimate
from mltcp_tools.lab.analysis.headline import headline
from mltcp_tools.lab.analysis.neighbours import neighbours_of
from mltcp_tools.lab.analysis.planned import planned_of
from mltcp_tools.lab.analysis.reference import Reference, make_reference
from mltcp_tools.lab.analysis.result import (
    AloneResult,
    Disturbed,
    Interleaved,
    JobResult,
    LinkResult,
    RunResult,
    ScheduleResult,
    Times,
    VariantResult,
    fields_of,
)
from mltcp_tools.lab.analysis.soundness import failures, warnings_of
from mltcp_tools.lab.analysis.undisturbed import Quiet, undisturbed
from mltcp_tools.lab.experiments.variants import ALONE
from mltcp_tools.lab.runs.run import Run


def summarise(run: Run) -> RunResult:
    """The result of a run."""
    quiet = undisturbed(run)
    return summarise_with(quiet, make_reference(quiet.run))


def summarise_with(quiet: Quiet, reference: Reference) -> RunResult:
    """`summarise` for a run and its reference that were made already."""
    run = quiet.run
    tables = {
        variant: run.iterations[run.iterations["variant"] == variant]
        for variant in run.variant_names
    }
    variants = {
        variant: _variant(run, variant, table, reference) for variant, table in tables.items()
    }
    schedules = {
        str(name): _schedule(table, reference.bursts[name], reference)
        for name, table in reference.iterations.items()
    }
    if "alone" in schedules:  # on links of their own, jobs neither overlap nor interleave
        schedules["alone"].overlap = schedules["alone"].interleaved_from = None
        for job in schedules["alone"].jobs.values():
            job.overlap = None
    problems = [*run.problems, *reference.problems]
    for variant, plan in planned_of(run).items():
        variants[variant].plan = plan
    for variant, neighbours in neighbours_of(run).items():
        variants[variant].neighbours = neighbours
    for variant, entry in variants.items():
        entry.base = run.base_of(variant)
        entry.disturbance = _disturbance(quiet, variant)
    wrong = failures(run, variants, reference.isolated)
    gains, speedups = _comparisons(
        {variant: table for variant, table in tables.items() if variant not in quiet.discarded},
        None if wrong else reference.iterations.get("bound"),
        run.baseline,
    )
    for variant, gain in gains.items():
        variants[variant].captured_gain = gain
    if not wrong and run.baseline not in quiet.discarded:
        _gains_of_schedules(schedules, variants.get(run.baseline or ""))
    result = RunResult(
        run=run.path.resolve().name,
        experiment=run.experiment.document,
        environment=run.environment,
        baseline=run.baseline,
        isolated=reference.isolated,
        alone=_alone(run),
        variants=variants,
        schedules=schedules,
        speedup=speedups,
        failures=wrong,
        problems=[*problems, *wrong],
    )
    result.warnings = [*warnings_of(run, result), *quiet.sentences()]
    result.headline = headline(result, list(run.experiment.links.values()))
    return result


def _times(table: pd.DataFrame) -> Times:
    return Times(
        iteration_s=metrics.distribution(metrics.iteration_times(table)),
        communication_s=metrics.distribution(table["comm_s"]),
        settled_mean_s=metrics.settled_mean(table),
    )


def _alone(run: Run) -> AloneResult | None:
    table = run.iterations[run.iterations["variant"] == ALONE]
    if table.empty:
        return None
    return AloneResult(cc=run.experiment.isolated_cc, **fields_of(_times(table)))


def _job(table: pd.DataFrame, overlap: float | None) -> JobResult:
    """A job's iterations and how they compare with the schedules', which are columns."""
    return JobResult(
        **fields_of(_times(table)),
        ratio_to_alone=metrics.ratio_of_means(table, "alone_s"),
        ratio_to_bound=metrics.ratio_of_means(table, "bound_s"),
        overlap=overlap,
    )


def _schedule(table: pd.DataFrame, bursts: pd.DataFrame, reference: Reference) -> ScheduleResult:
    """Return the figures that variants and schedules have in common."""
    overlap, overlap_of_jobs = metrics.overlap(bursts)
    for name, other in reference.iterations.items():
        table = metrics.with_time_of(table, other, f"{name}_s")
    whole = fields_of(_job(table, None)) | {"overlap": overlap}
    repetitions = {int(str(number)): rows for number, rows in table.groupby("repetition")}
    interleaved = [
        metrics.interleaved_from(rows, reference.isolated_comm_s)
        for rows in repetitions.values()
        if set(rows["job"]) <= set(reference.isolated_comm_s)
    ]
    return ScheduleResult(
        **whole,
        interleaved_from=Interleaved(
            typical=metrics.typical(interleaved), per_repetition=interleaved
        )
        if interleaved
        else None,
        means_s={
            number: float(metrics.iteration_times(rows).mean())
            for number, rows in repetitions.items()
        },
        jobs={
            str(job): _job(rows, overlap_of_jobs.get(str(job)))
            for job, rows in table.groupby("job", sort=False)
        },
    )


def _variant(run: Run, variant: str, table: pd.DataFrame, reference: Reference) -> VariantResult:
    bursts = run.bursts[run.bursts["variant"] == variant]
    common = _schedule(table, bursts, reference)
    rows = run.variants[run.variants["variant"] == variant]
    return VariantResult(
        cc=run.experiment.variants[variant].cc,
        **fields_of(common),
        link=LinkResult(
            utilisation=metrics.utilisation(rows, run.experiment.rate_bps),
            sending=_sending(run, bursts),
            drops=_total(rows["link_drops"]),
            packets=_total(rows["link_packets"]),
        ),
        cpu_busy=rows["cpu_busy"].max() if len(rows) else None,
        events_per_burst=_events_per_burst(run, variant),
    )


def _sending(run: Run, bursts: pd.DataFrame) -> float | None:
    rate = metrics.sending_rate(bursts)
    return None if rate is None or not run.experiment.rate_bps else rate / run.experiment.rate_bps


def _disturbance(quiet: Quiet, variant: str) -> Disturbed | None:
    known = quiet.of(variant)
    if not known:
        return None
    discarded = variant in quiet.discarded
    shown = known if discarded else [each for each in known if not each.disturbed]
    worst = max(shown, key=lambda each: each.share)
    return Disturbed(
        share=worst.share,
        busiest=worst.busiest,
        skipped=sum(each.skipped for each in shown),
        discarded=discarded,
        left_out=len(known) - len(shown),
        again=sum(each.attempt - 1 for each in known),
    )


def _total(values: pd.Series[float]) -> int | None:
    return int(values.sum()) if values.notna().any() else None


def _events_per_burst(run: Run, variant: str) -> float | None:
    events = run.flow_events[run.flow_events["variant"] == variant]
    bursts = run.bursts[run.bursts["variant"] == variant]
    if events.empty or bursts.empty:
        return None
    jobs = run.experiment.jobs
    flows = bursts["job"].map(lambda job: jobs[job].carrying).astype(float)
    return len(events) / float(flows.sum())


def _comparisons(
    tables: dict[str, pd.DataFrame], bound: pd.DataFrame | None, baseline: str | None
) -> tuple[
    dict[str, Estimate | None],
    dict[str, dict[str, dict[str, Estimate | None]]],
]:
    """Captured gain per variant and speed-up of each variant over each other, on shared
    iterations."""
    named = dict(tables)
    if bound is not None:
        named["\0bound"] = bound
    values = dict(zip(named, bootstrap.cubes(list(named.values())), strict=True))
    cache: dict[tuple[str, bytes], bootstrap.Replicates | None] = {}

    def replicates(*names: str) -> list[bootstrap.Replicates] | None:
        mask = bootstrap.shared(*(values[name] for name in names))
        found = []
        for name in names:
            key = (name, np.packbits(mask).tobytes())
            if key not in cache:
                cache[key] = bootstrap.replicate(np.where(mask, values[name], np.nan))
            one = cache[key]
            if one is None:
                return None
            found.append(one)
        return found

    gains: dict[str, Estimate | None] = {}
    speedups: dict[str, dict[str, dict[str, Estimate | None]]] = {}
    for variant in tables:
        if baseline in tables and bound is not None and variant != baseline:
            parts = replicates(str(baseline), variant, "\0bound")
            gain = bootstrap.gain_of_means(*parts) if parts else None
            gains[variant] = bootstrap.estimate(*gain) if gain else None
        speedups[variant] = {}
        for other in tables:
            parts = replicates(other, variant) if other != variant else None
            if parts:
                speedups[variant][other] = bootstrap.combine(bootstrap.speedup, *parts)
    return gains, speedups


def _gains_of_schedules(
    schedules: Mapping[str, ScheduleResult], baseline: VariantResult | None
) -> None:
    bound = schedules.get("bound")
    if not (baseline and baseline.iteration_s and bound and bound.iteration_s):
        return
    start, end = baseline.iteration_s.mean, bound.iteration_s.mean
    if start < (1 + bootstrap.MIN_ROOM) * end:
        return
    for entry in schedules.values():
        if entry.iteration_s:
            gain = float(bootstrap.captured_gain(start, entry.iteration_s.mean, end))
            entry.captured_gain = Estimate(gain, None, None)
