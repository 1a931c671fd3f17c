# SPDX-License-Identifier: BSD-2-Clause
"""Profiles from a run folder: of `mltcp lab record`, or of the testbed's emulated jobs."""

from __future__ import annotations

import pandas as pd

from mltcp_tools.base.errors import UsageError
from mltcp_tools.lab.experiments.variants import ALONE
from mltcp_tools.lab.planning.profile import Phase, Profile
from mltcp_tools.lab.runs.run import Run


def profiles_of_run(run: Run, variant: str | None = None) -> list[Profile]:
    """One profile per job of the run, from the iterations of `variant`.

    Without `variant` it is the variant alone: what jobs ask for is seen where nobody is in their
    way. A job that was not measured alone, because an equal one was, gets the profile of that one.
    A recording has one variant, which is taken. The first iteration is left out, where there are
    others enough: it has the slow start of new connections. Raises UsageError where a job has fewer
    than two iterations, or the variant isn't there.
    """
    chosen = _variant(run, variant)
    names = run.job_names or list(run.experiment.jobs)
    return [_profile(run, chosen, name, _measured(run, chosen, name)) for name in names]


def _variant(run: Run, variant: str | None) -> str:
    present = list(dict.fromkeys(run.iterations["variant"]))
    if not present:
        raise UsageError(f"{run.path} holds no iterations, so no profile can be made of it.")
    if variant is not None:
        if variant not in present:
            raise UsageError(f"{run.path} has no variant {variant!r}; it has {', '.join(present)}.")
        return variant
    if ALONE in present or len(present) == 1:
        return ALONE if ALONE in present else present[0]
    raise UsageError(
        f"{run.path} lacks the variant alone, so jobs were measured only while others slowed them"
        f" down; name a variant with --variant: {', '.join(present)}."
    )


def _measured(run: Run, variant: str, job: str) -> str:
    """The job whose iterations stand for those of `job` in `variant`."""
    own = run.iterations[run.iterations["variant"] == variant]
    measured = [str(each) for each in dict.fromkeys(own["job"])]
    if job in measured:
        return job
    views = run.experiment.jobs
    equal = [other for other in measured if views[other].demand() == views[job].demand()]
    if not equal:
        raise UsageError(f"{run.path}: the variant {variant} has no iterations of job {job}.")
    return equal[0]


def _profile(run: Run, variant: str, job: str, measured: str) -> Profile:
    iterations = _rows(run.iterations, variant, measured)
    if len(iterations) < 2:
        raise UsageError(
            f"{run.path}: job {measured} has one iteration only in the variant {variant}; a"
            f" period takes"
            " two or more."
        )
    if len(iterations) > 2:
        iterations = iterations[iterations["iteration"] > iterations["iteration"].min()]
    ways = _recorded_ways(run, variant, measured)
    if ways is not None:
        period_s = float((iterations["end_s"] - iterations["start_s"]).mean())
        there, back = (_mean_phase(rows, iterations, period_s) for rows in ways)
        return Profile(job, period_s, there, back)
    bursts = _rows(run.bursts, variant, measured)
    if bursts.empty:
        raise UsageError(
            f"{run.path}: the table bursts has none of job {measured} in variant {variant}."
        )
    rows = bursts.merge(
        iterations[["repetition", "iteration", "start_s", "end_s"]],
        on=["repetition", "iteration"],
        suffixes=("", "_iteration"),
    )
    period_s, phases = _fold(rows)
    both = run.experiment.jobs[measured].direction == "both"
    return Profile(job, period_s, phases, phases if both else ())


def _recorded_ways(run: Run, variant: str, job: str) -> tuple[pd.DataFrame, pd.DataFrame] | None:
    """A recorded job's events of each direction, where it sends in both of them."""
    events = _rows(run.flow_events, variant, job)
    if not run.experiment.recorded or events["back"].isna().any() or not events["back"].any():
        return None
    return events[events["back"] == 0], events[events["back"] == 1]


def _mean_phase(
    events: pd.DataFrame, iterations: pd.DataFrame, period_s: float
) -> tuple[Phase, ...]:
    """Return the work of one direction's flows in an iteration: one phase, from the first to
    the last.
    """
    grouped = events.groupby("iteration")
    spans = pd.DataFrame(
        {
            "begin_s": grouped["first_ack_s"].min(),
            "finish_s": grouped["last_ack_s"].max(),
            "sent": grouped["bytes"].sum(),
        }
    )
    rows = iterations.set_index("iteration").join(spans, how="inner")
    length_s = min(float((rows["finish_s"] - rows["begin_s"]).median()), period_s)
    size = float(rows["sent"].median())  # the last iteration may lack flows
    if not (length_s > 0 and size > 0):
        return ()
    start_s = float((rows["begin_s"] - rows["start_s"]).clip(lower=0.0).mean())
    return (Phase(min(start_s, period_s - length_s), length_s, size * 8 / length_s),)


def _rows(table: pd.DataFrame, variant: str, job: str) -> pd.DataFrame:
    return table[(table["variant"] == variant) & (table["job"] == job)]


def _fold(rows: pd.DataFrame) -> tuple[float, tuple[Phase, ...]]:
    """Period and phases of bursts that know their iteration's start and end.

    Computing varies evenly, so its mean counts; a burst is slow once in a while by much, so its
    median does.
    """
    rows = rows.sort_values(["repetition", "iteration", "burst"])
    key = [rows["repetition"], rows["iteration"]]
    before_s = rows.groupby(key)["end_s"].shift().fillna(rows["start_s_iteration"])
    gaps = (rows["start_s"] - before_s).clip(lower=0.0).groupby(rows["burst"]).mean()
    lengths = (rows["end_s"] - rows["start_s"]).groupby(rows["burst"]).median()
    sizes = rows["bytes"].groupby(rows["burst"]).mean()
    last = rows.groupby(key).tail(1)
    rest_s = max(0.0, float((last["end_s_iteration"] - last["end_s"]).mean()))
    at_s = 0.0
    phases: list[Phase] = []
    for burst in lengths.index:
        at_s += float(gaps[burst])
        length_s = float(lengths[burst])
        if length_s > 0 and sizes[burst] > 0:
            phases.append(Phase(at_s, length_s, float(sizes[burst]) * 8 / length_s))
        at_s += length_s
    return at_s + rest_s, tuple(phases)
