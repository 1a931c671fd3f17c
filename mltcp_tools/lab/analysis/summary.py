# SPDX-License-Identifier: BSD-2-Clause
"""Computes the result of a run (result.py) from its tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

import numpy as np
import pandas as pd

from mltcp_tools.lab.analysis import bootstrap, metrics
from mltcp_tools.lab.analysis.bootstrap import Estimate
from mltcp_tools.lab.analysis.headline import headline
from mltcp_tools.lab.analysis.metrics import Distribution
from mltcp_tools.lab.analysis.neighbours import jains_of, neighbours_of
from mltcp_tools.lab.analysis.phases import phases_of
from mltcp_tools.lab.analysis.planned import planned_of
from mltcp_tools.lab.analysis.reference import Reference, make_reference
from mltcp_tools.lab.analysis.result import (
    AloneResult,
    Disturbed,
    Interleaved,
    JobResult,
    Kernel,
    Link,
    Packets,
    Queue,
    Repetition,
    Result,
    ScheduleResult,
    Spread,
    Times,
    VariantResult,
    fields_of,
)
from mltcp_tools.lab.analysis.soundness import failures, warnings_of
from mltcp_tools.lab.analysis.undisturbed import Quiet, undisturbed
from mltcp_tools.lab.runs.described import ALONE
from mltcp_tools.lab.runs.disturbance import Levels
from mltcp_tools.lab.runs.run import Run


def summarise(run: Run, settled_from: int = metrics.SETTLED_FROM) -> Result:
    """The result of a run; `settled_from` is an iteration number."""
    quiet = undisturbed(run)
    return summarise_with(quiet, make_reference(quiet.run), settled_from)


def summarise_with(quiet: Quiet, reference: Reference, settled_from: int) -> Result:
    """`summarise` for a run and its reference that were made already."""
    run = quiet.run
    tables = {
        variant: run.iterations[run.iterations["variant"] == variant]
        for variant in run.variant_names
    }
    variants = {
        variant: _variant(run, variant, table, reference, settled_from)
        for variant, table in tables.items()
    }
    schedules = {
        str(name): _schedule(table, reference.bursts[name], reference, settled_from)
        for name, table in reference.iterations.items()
    }
    if "alone" in schedules:  # on links of their own, jobs neither overlap nor interleave
        schedules["alone"].overlap = schedules["alone"].interleaved_from = None
        for job in schedules["alone"].jobs.values():
            job.overlap = None
    problems = [*run.problems, *reference.problems]
    for variant, plan in planned_of(run, problems).items():
        variants[variant].plan = plan
    for variant, neighbours in neighbours_of(run).items():
        variants[variant].neighbours = neighbours
    for variant, jain in jains_of(run).items():
        variants[variant].jain = jain
    for variant, entry in variants.items():
        entry.base = run.base_of(variant)
        entry.disturbance = _disturbance(quiet, variant)
    wrong = failures(run, variants, reference.lone)
    gains, speedups = _comparisons(
        {variant: table for variant, table in tables.items() if variant not in quiet.discarded},
        None if wrong else reference.iterations.get("bound"),
        run.baseline,
    )
    for variant, gain in gains.items():
        variants[variant].captured_gain = gain
    if not wrong and run.baseline not in quiet.discarded:
        _gains_of_schedules(schedules, variants.get(run.baseline or ""))
    result = Result(
        run=run.path.resolve().name,
        experiment=run.experiment.document,
        environment=run.environment,
        baseline=run.baseline,
        settled_from=settled_from,
        isolated_comm_s=reference.isolated_comm_s,
        lone=reference.lone,
        alone=_alone(run, settled_from),
        variants=variants,
        schedules=schedules,
        speedup=speedups,
        failures=wrong,
        problems=[*problems, *wrong],
    )
    result.missed = run.experiment.expect.missed(
        {variant: each.iteration_s.mean for variant, each in variants.items() if each.iteration_s},
        {
            variant: each.captured_gain.value
            for variant, each in variants.items()
            if each.captured_gain
        },
    )
    result.warnings = [*warnings_of(run, result), *quiet.sentences()]
    result.headline = headline(result)
    return result


def _times(table: pd.DataFrame) -> Times:
    return Times(
        iteration_s=metrics.distribution(metrics.iteration_times(table)),
        communication_s=metrics.distribution(table["comm_s"]),
    )


def _alone(run: Run, settled_from: int) -> AloneResult | None:
    table = run.iterations[run.iterations["variant"] == ALONE]
    if table.empty:
        return None
    settled = metrics.settled(table, settled_from)
    return AloneResult(
        cc=run.experiment.isolated_cc,
        **fields_of(_times(table)),
        settled_mean_s=settled.mean if settled else None,
        link=_packets(run.variants[run.variants["variant"] == ALONE]),
        jobs={str(job): _times(rows) for job, rows in table.groupby("job", sort=False)},
    )


def _job(table: pd.DataFrame, settled_from: int, overlap: float | None) -> JobResult:
    """A job's iterations and how they compare with the schedules', which are columns."""
    settled = metrics.settled(table, settled_from)
    return JobResult(
        **fields_of(_times(table)),
        settled_mean_s=settled.mean if settled else None,
        settled_p99_s=settled.p99 if settled else None,
        ratio_to_alone=metrics.ratio_of_means(table, "alone_s"),
        ratio_to_bound=metrics.ratio_of_means(table, "bound_s"),
        overlap=overlap,
    )


def _schedule(
    table: pd.DataFrame, bursts: pd.DataFrame, reference: Reference, settled_from: int
) -> ScheduleResult:
    """Return the figures that variants and schedules have in common."""
    overlap, overlap_of_jobs = metrics.overlap(bursts)
    for name, other in reference.iterations.items():
        table = metrics.with_time_of(table, other, f"{name}_s")
    whole = fields_of(_job(table, settled_from, None)) | {"overlap": overlap}
    repetitions = [(int(str(number)), rows) for number, rows in table.groupby("repetition")]
    means = [float(metrics.iteration_times(rows).mean()) for _, rows in repetitions]
    interleaved = [
        metrics.interleaved_from(rows, reference.isolated_comm_s)
        for _, rows in repetitions
        if set(rows["job"]) <= set(reference.isolated_comm_s)
    ]
    return ScheduleResult(
        **whole,
        settled_ratio_to_bound=metrics.ratio_of_means(
            table[table["iteration"] >= settled_from], "bound_s"
        ),
        interleaved_from=Interleaved(
            typical=metrics.typical(interleaved), per_repetition=interleaved
        )
        if interleaved
        else None,
        per_repetition=[_repetition(number, rows, settled_from) for number, rows in repetitions],
        spread_s=Spread(min=min(means), max=max(means)) if means else None,
        jobs={
            str(job): _job(rows, settled_from, overlap_of_jobs.get(str(job)))
            for job, rows in table.groupby("job", sort=False)
        },
    )


def _repetition(number: int, table: pd.DataFrame, settled_from: int) -> Repetition:
    found = metrics.distribution(metrics.iteration_times(table))
    late = metrics.settled(table, settled_from)
    return Repetition(
        repetition=number,
        mean_s=found.mean if found else None,
        p99_s=found.p99 if found else None,
        settled_mean_s=late.mean if late else None,
    )


def _variant(
    run: Run, variant: str, table: pd.DataFrame, reference: Reference, settled_from: int
) -> VariantResult:
    bursts = run.bursts[run.bursts["variant"] == variant]
    common = _schedule(table, bursts, reference, settled_from)
    rows = run.variants[run.variants["variant"] == variant]
    return VariantResult(
        cc=run.experiment.variants.get(variant, {}).get("cc"),
        **fields_of(common),
        link=Link(
            utilisation=metrics.utilisation(rows, run.experiment.rate_bps),
            sending=_sending(run, bursts),
            **fields_of(_packets(rows)),
            queue=_queue(rows),
        ),
        cpu_busy=rows["cpu_busy"].max() if len(rows) else None,
        kernel=_kernel(run, variant),
        phases=phases_of(table, reference.iterations.get("bound")),
        spread_of_completion=_spread_of_completion(run, variant),
    )


def _sending(run: Run, bursts: pd.DataFrame) -> float | None:
    rate = metrics.sending_rate(bursts)
    return None if rate is None or not run.experiment.rate_bps else rate / run.experiment.rate_bps


def _queue(rows: pd.DataFrame) -> Queue | None:
    mean, p99 = rows["queue_mean_bytes"].mean(), rows["queue_p99_bytes"].mean()
    return None if pd.isna(mean) or pd.isna(p99) else Queue(mean_bytes=mean, p99_bytes=p99)


def _packets(rows: pd.DataFrame) -> Packets:
    """Packets of some rows of the table variants."""
    return Packets(
        drops=_total(rows["link_drops"]),
        marks=_total(rows["link_marks"]),
        packets=_total(rows["link_packets"]),
    )


def _disturbance(quiet: Quiet, variant: str) -> Disturbed | None:
    known = quiet.of(variant)
    if not known:
        return None
    discarded = variant in quiet.discarded
    shown = known if discarded else [each for each in known if not each.disturbed]
    worst = max(shown, key=lambda each: each.share)
    return Disturbed(
        discarded=discarded,
        left_out=len(known) - len(shown),
        again=sum(each.attempt - 1 for each in known),
        **{each.name: getattr(worst, each.name) for each in fields(Levels)}
        | {"skipped": sum(each.skipped for each in shown)},
    )


def _spread_of_completion(run: Run, variant: str) -> Distribution | None:
    several = [name for name, job in run.experiment.jobs.items() if job.flows > 1]
    bursts = run.bursts[(run.bursts["variant"] == variant) & run.bursts["job"].isin(several)]
    return metrics.distribution(bursts["end_s"] - bursts["first_end_s"])


def _total(values: pd.Series[float]) -> int | None:
    return int(values.sum()) if values.notna().any() else None


def _kernel(run: Run, variant: str) -> Kernel | None:
    events = run.flow_events[run.flow_events["variant"] == variant]
    if events.empty:
        return None
    bursts = run.bursts[run.bursts["variant"] == variant]
    jobs = run.experiment.jobs
    flows = bursts["job"].map(lambda job: jobs[job].carrying if job in jobs else 1).astype(float)
    return Kernel(
        events=len(events),
        events_per_burst=len(events) / flows.sum() if len(flows) else None,
        retransmits=_total(events["retransmits"]),
        final_ratio=events["ratio"].mean(),
    )


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
