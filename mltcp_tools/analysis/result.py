"""What a run came to, as one JSON document: the schema `mltcp-result/1`.

Times are seconds, numbers of iterations count from 1, ratios and shares are plain numbers, and null
stands for what couldn't be computed (`problems` says why). The measures are defined in metrics.py,
the schedules in schedules.py, the intervals in bootstrap.py.

    schema          "mltcp-result/1"
    run             name of the run folder
    experiment      the experiment as run (experiment.yaml), or {}
    environment     environment.json, or {}
    baseline        name of the arm that others are compared with
    settled_from    first iteration that settled_mean_s and settled_p99_s count
    lone_comm_s     {job: communication time per iteration that nothing comes in the way of}
    lone            {job: {needs_s, latency_s, how, …}}: where that comes from, and what the job
                    made of it alone (lone.py)
    alone           the measured arm alone, or null: jobs that have no equal, each run alone
        cc                              its congestion control, the baseline's
        iteration_s, communication_s    distributions
        settled_mean_s                  as in arms
        link                            as in arms, less utilisation
        jobs                            {job: {iteration_s, communication_s}}
    arms            {arm: entry}, in the experiment's order
        cc                  its congestion control
        iteration_s         distribution of iteration times, pooled over jobs and repetitions
        communication_s     distribution of communication times per iteration, pooled likewise
        settled_mean_s, settled_p99_s    of iteration times from iteration settled_from on
        ratio_to_alone      mean iteration time over the schedule alone's, same iterations
        ratio_to_bound      mean iteration time over the bound's, same iterations
        settled_ratio_to_bound    the same from iteration settled_from on
        captured_gain       estimate: (baseline mean - mean) / (baseline mean - bound mean), same
                            iterations; null for the baseline, for arms that were disturbed, and
                            for all where the baseline was, or is within 2 % of the bound
        overlap             {run, first_third, last_third}: share of communication time during which
                            other jobs communicate, too
        interleaved_from    {typical, per_repetition}: iteration from which the jobs are
                            interleaved, null when they are not; typical is the median
        link                {utilisation, drops, marks, packets}: share of the bottleneck's rate
                            that was used, mean over repetitions; sums of packets
        cpu_busy            highest share of the host's CPU time in use, over repetitions
        kernel              what the backend saw, or null: {events, events_per_burst, retransmits,
                            final_ratio}: iterations it ended; the same per burst and flow that was
                            sent (1 when it sees what happens); retransmitted segments; mean bytes
                            ratio at the end of an iteration
        phases              [{jobs, iteration_s, bound_s}]: iterations while just these jobs ran,
                            and the bound's mean over them; [] where all jobs run all the time
                            (phases.py)
        spread_of_completion    distribution: seconds between the first and the last flow of a burst
                            to be done, of jobs with several flows; null where there are none
        plan                of an arm whose jobs keep to planned turns, or null: {score, worst,
                            bound, stretch, realigned, realigned_per_minute, waited_s, jobs: {job:
                            {shift_s, turn_s, realigned, realigned_per_minute, waited_s}}}: the
                            compatibility score over all shared links, on the worst one, and one
                            that no shifts exceed; by what share turns are longer than iterations
                            alone; re-alignments, those per minute and job, and the mean wait of an
                            iteration for its turn (planned.py)
        base                the arm whose congestion control this one builds on, or null
        neighbours          {name: {kind, cc, …}}: kind "bulk" has throughput_bps: {mean, min, max}
                            over repetitions, and ratio_to_base; kind "requests" has completion_s, a
                            distribution, and ratio_to_base: {mean, p50, p99}; {} where there are
                            none (neighbours.py)
        jain                {value, per_repetition, ratio_to_base}: Jain index of the bulk flows'
                            throughput, value is the mean; null with fewer than two
        disturbance         {void, left_out, again, share, stolen, others, queued, …}, or null
                            where nothing was watched: whether the arm was disturbed in every
                            repetition, so that it can't be compared; disturbed repetitions that are
                            left out; disturbed runs that were made again; of what is shown, the
                            highest share of disturbed seconds, and the rest as in
                            runs/disturbance.py, the worst repetition's
        per_repetition      [{repetition, mean_s, p99_s, settled_mean_s, duration_s, cpu_busy}]
        spread_s            {min, max}: of the repetitions' means
        jobs                {job: {iteration_s, communication_s, settled_mean_s, settled_p99_s,
                            ratio_to_alone, ratio_to_bound, overlap}}
    schedules       {alone, bound, fair}: entries as in arms, less cc, link, cpu_busy, kernel, plan,
                    base, phases, spread_of_completion, neighbours and jain; no interval for
                    captured_gain; {} when they can't be computed
    speedup         {arm: {other arm: {mean, p99}}}: estimates of how many times faster (above 1) or
                    slower the arm is than the other, on the iterations both have; arms that can
                    be compared
    failures        why the evaluation can't be right, one sentence each (sound.py); there are no
                    captured gains then
    headline        the run in three sentences (headline.py)
    problems        what is missing or damaged, one sentence each
    warnings        what makes the numbers doubtful, one sentence each

    distribution    {count, mean, p50, p95, p99}
    estimate        {value, low, high}: low and high bound the 95 % confidence interval
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from mltcp_tools.analysis import bootstrap, metrics
from mltcp_tools.analysis.doubts import warnings_of
from mltcp_tools.analysis.headline import headline
from mltcp_tools.analysis.neighbours import neighbours_of
from mltcp_tools.analysis.phases import phases_of
from mltcp_tools.analysis.planned import planned_of
from mltcp_tools.analysis.quiet import Quiet, undisturbed
from mltcp_tools.analysis.reference import Reference, make_reference
from mltcp_tools.analysis.sound import failures
from mltcp_tools.runs.described import ALONE
from mltcp_tools.runs.run import Run

SCHEMA = "mltcp-result/1"
Entry = dict[str, Any]
_DISTURBED_BY = ("share", "stolen", "others", "queued", "late_s", "latest_s")


def summarise(run: Run, settled_from: int = metrics.SETTLED_FROM) -> Entry:
    """The result of a run (see the module's text); `settled_from` is an iteration number."""
    quiet = undisturbed(run)
    return summarise_with(quiet, make_reference(quiet.run), settled_from)


def summarise_with(quiet: Quiet, reference: Reference, settled_from: int) -> Entry:
    """`summarise` for a run and its reference that were made already."""
    run = quiet.run
    tables = {arm: run.iterations[run.iterations["arm"] == arm] for arm in run.arm_names}
    arms = {arm: _arm(run, arm, table, reference, settled_from) for arm, table in tables.items()}
    schedules = {
        str(name): _entry(table, reference.bursts[name], reference, settled_from)
        for name, table in reference.iterations.items()
    }
    wrong = failures(run, arms, reference.lone)
    gains, speedups = _comparisons(
        {arm: table for arm, table in tables.items() if arm not in quiet.void},
        None if wrong else reference.iterations.get("bound"),
        run.baseline,
    )
    for arm, gain in gains.items():
        arms[arm]["captured_gain"] = gain.as_dict() if gain else None
    if "alone" in schedules:  # on links of their own, jobs neither overlap nor interleave
        schedules["alone"].update(overlap=None, interleaved_from=None)
        for job in schedules["alone"]["jobs"].values():
            job["overlap"] = None
    beside = neighbours_of(run)
    problems = [*run.problems, *reference.problems]
    planned = planned_of(run, problems)
    for arm, entry in arms.items():
        entry |= {"plan": planned.get(arm), "base": run.base_of(arm)}
        entry |= {"neighbours": {}, "jain": None} | beside.get(arm, {})
        entry["disturbance"] = _disturbance(quiet, arm)
    if not wrong and run.baseline not in quiet.void:
        _gains_of_schedules(schedules, arms.get(run.baseline or ""))
    result: Entry = {
        "schema": SCHEMA,
        "run": run.path.resolve().name,
        "experiment": run.experiment.document,
        "environment": run.environment,
        "baseline": run.baseline,
        "settled_from": settled_from,
        "lone_comm_s": reference.lone_comm_s,
        "lone": {job: each.as_dict() for job, each in reference.lone.items()},
        "alone": _alone(run, settled_from),
        "arms": arms,
        "schedules": schedules,
        "speedup": {
            arm: {
                other: {what: e.as_dict() if e else None for what, e in estimates.items()}
                for other, estimates in others.items()
            }
            for arm, others in speedups.items()
        },
        "failures": wrong,
        "problems": [*problems, *wrong],
        "warnings": [],
    }
    result["warnings"] = [*warnings_of(run, result, reference.lone), *quiet.sentences()]
    result["headline"] = headline(result)
    return plain(result)


def plain(document: Mapping[str, object]) -> Entry:
    """A document in the types that JSON has; not-a-number becomes None."""
    return {str(key): _plain(each) for key, each in document.items()}


def _distribution(values: pd.Series[float]) -> Entry | None:
    found = metrics.distribution(values)
    return found.as_dict() if found else None


def _times(table: pd.DataFrame) -> Entry:
    return {
        "iteration_s": _distribution(metrics.iteration_times(table)),
        "communication_s": _distribution(table["comm_s"]),
    }


def _alone(run: Run, settled_from: int) -> Entry | None:
    table = run.iterations[run.iterations["arm"] == ALONE]
    if table.empty:
        return None
    jobs = {str(job): _times(rows) for job, rows in table.groupby("job", sort=False)}
    settled = metrics.settled(table, settled_from)
    rows = run.arms[run.arms["arm"] == ALONE]
    return {
        "cc": run.experiment.lone_cc,
        **_times(table),
        "settled_mean_s": settled.mean if settled else None,
        "link": _packets(rows),
        "jobs": jobs,
    }


def _relative(table: pd.DataFrame, settled_from: int) -> Entry:
    """How iterations compare with the schedules, whose times are columns of the table."""
    settled = metrics.settled(table, settled_from)
    return {
        "settled_mean_s": settled.mean if settled else None,
        "settled_p99_s": settled.p99 if settled else None,
        "ratio_to_alone": metrics.ratio_of_means(table, "alone_s"),
        "ratio_to_bound": metrics.ratio_of_means(table, "bound_s"),
    }


def _entry(
    table: pd.DataFrame, bursts: pd.DataFrame, reference: Reference, settled_from: int
) -> Entry:
    """What arms and schedules have in common."""
    overlap, overlap_of_jobs = metrics.overlap(bursts)
    for name, other in reference.iterations.items():
        table = metrics.with_time_of(table, other, f"{name}_s")
    jobs = {
        str(job): {
            **_times(rows),
            **_relative(rows, settled_from),
            "overlap": overlap_of_jobs.get(str(job)),
        }
        for job, rows in table.groupby("job", sort=False)
    }
    settled = table[table["iteration"] >= settled_from]
    repetitions = []
    interleaved: list[int | None] = []
    for repetition, rows in table.groupby("repetition"):
        found = metrics.distribution(metrics.iteration_times(rows))
        late = metrics.settled(rows, settled_from)
        repetitions.append(
            {
                "repetition": repetition,
                "mean_s": found.mean if found else None,
                "p99_s": found.p99 if found else None,
                "settled_mean_s": late.mean if late else None,
            }
        )
        if set(rows["job"]) <= set(reference.lone_comm_s):
            interleaved.append(metrics.interleaved_from(rows, reference.lone_comm_s))
    means = [float(metrics.iteration_times(rows).mean()) for _, rows in table.groupby("repetition")]
    return {
        **_times(table),
        **_relative(table, settled_from),
        "settled_ratio_to_bound": metrics.ratio_of_means(settled, "bound_s"),
        "captured_gain": None,
        "overlap": overlap.as_dict() if overlap else None,
        "interleaved_from": {
            "typical": metrics.typical(interleaved),
            "per_repetition": interleaved,
        }
        if interleaved
        else None,
        "per_repetition": repetitions,
        "spread_s": {"min": min(means), "max": max(means)} if means else None,
        "jobs": jobs,
    }


def _arm(run: Run, arm: str, table: pd.DataFrame, reference: Reference, settled_from: int) -> Entry:
    entry = _entry(table, run.bursts[run.bursts["arm"] == arm], reference, settled_from)
    rows = run.arms[run.arms["arm"] == arm]
    by_repetition = rows.set_index("repetition")
    for each in entry["per_repetition"]:
        known = each["repetition"] in by_repetition.index
        for column in ("duration_s", "cpu_busy"):
            each[column] = by_repetition.loc[each["repetition"], column] if known else None
    return {
        "cc": run.experiment.arms.get(arm, {}).get("cc"),
        **entry,
        "link": {
            "utilisation": metrics.utilisation(rows, run.experiment.rate_bps),
            **_packets(rows),
        },
        "cpu_busy": rows["cpu_busy"].max() if len(rows) else None,
        "kernel": _kernel(run, arm),
        "phases": phases_of(table, reference.iterations.get("bound")),
        "spread_of_completion": _spread_of_completion(run, arm),
    }


def _packets(rows: pd.DataFrame) -> Entry:
    """Packets of some rows of the table arms."""
    return {name: _total(rows[f"link_{name}"]) for name in ("drops", "marks", "packets")}


def _disturbance(quiet: Quiet, arm: str) -> Entry | None:
    known = quiet.of(arm)
    if not known:
        return None
    void = arm in quiet.void
    shown = known if void else [each for each in known if not each.disturbed]
    worst = max(shown, key=lambda each: each.share)
    return {
        "void": void,
        "left_out": len(known) - len(shown),
        "again": sum(each.attempt - 1 for each in known),
        **{key: getattr(worst, key) for key in _DISTURBED_BY},
    }


def _spread_of_completion(run: Run, arm: str) -> Entry | None:
    several = [name for name, job in run.experiment.jobs.items() if job.flows > 1]
    bursts = run.bursts[(run.bursts["arm"] == arm) & run.bursts["job"].isin(several)]
    return _distribution(bursts["end_s"] - bursts["first_end_s"])


def _total(values: pd.Series[float]) -> int | None:
    return int(values.sum()) if values.notna().any() else None


def _kernel(run: Run, arm: str) -> Entry | None:
    events = run.flow_events[run.flow_events["arm"] == arm]
    if events.empty:
        return None
    bursts = run.bursts[run.bursts["arm"] == arm]
    jobs = run.experiment.jobs
    flows = bursts["job"].map(lambda job: jobs[job].carrying if job in jobs else 1).astype(float)
    return {
        "events": len(events),
        "events_per_burst": len(events) / flows.sum() if len(flows) else None,
        "retransmits": _total(events["retransmits"]),
        "final_ratio": events["ratio"].mean(),
    }


def _comparisons(
    tables: dict[str, pd.DataFrame], bound: pd.DataFrame | None, baseline: str | None
) -> tuple[
    dict[str, bootstrap.Estimate | None],
    dict[str, dict[str, dict[str, bootstrap.Estimate | None]]],
]:
    """Captured gain per arm and speed-up of each arm over each other, on shared iterations."""
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

    gains: dict[str, bootstrap.Estimate | None] = {}
    speedups: dict[str, dict[str, dict[str, bootstrap.Estimate | None]]] = {}
    for arm in tables:
        if baseline in tables and bound is not None and arm != baseline:
            parts = replicates(str(baseline), arm, "\0bound")
            gain = bootstrap.gain_of_means(*parts) if parts else None
            gains[arm] = bootstrap.estimate(*gain) if gain else None
        speedups[arm] = {}
        for other in tables:
            parts = replicates(other, arm) if other != arm else None
            if parts:
                speedups[arm][other] = bootstrap.combine(bootstrap.speedup, *parts)
    return gains, speedups


def _gains_of_schedules(schedules: Mapping[str, Entry], baseline: Entry | None) -> None:
    if not baseline or "bound" not in schedules:
        return
    start, bound = baseline["iteration_s"]["mean"], schedules["bound"]["iteration_s"]["mean"]
    if start < (1 + bootstrap.MIN_ROOM) * bound:
        return
    for entry in schedules.values():
        gain = float(bootstrap.captured_gain(start, entry["iteration_s"]["mean"], bound))
        entry["captured_gain"] = {"value": gain, "low": None, "high": None}


def _plain(value: object) -> object:
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
