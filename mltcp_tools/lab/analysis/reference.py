# SPDX-License-Identifier: BSD-2-Clause
"""From a run to the schedules it is measured against: `alone`, `bound`, `fair` (schedules.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pandas as pd

from mltcp_tools.lab.analysis.isolated import Isolated, isolated_jobs
from mltcp_tools.lab.analysis.patterned import bursts_of, fabric_schedules, isolated_of
from mltcp_tools.lab.runs.described import ALONE
from mltcp_tools.lab.runs.run import Run
from mltcp_tools.lab.simulator.schedules import (
    SCHEDULES,
    Schedule,
    ScheduledJob,
    iterations_of,
    simulate,
)


@dataclass
class Reference:
    """The schedules of a run, pooled like its variants.

    isolated: job -> its need with the link to itself, where that is known.
    iterations, bursts: schedule -> table with the columns of the run's tables, less variant and
    bytes; a schedule that can't be computed is absent.
    problems: why, one sentence each.
    """

    isolated: dict[str, Isolated] = field(default_factory=dict)
    iterations: dict[Schedule, pd.DataFrame] = field(default_factory=dict)
    bursts: dict[Schedule, pd.DataFrame] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @property
    def isolated_comm_s(self) -> dict[str, float]:
        """Job -> communication time of an iteration to which nothing comes in the way, seconds."""
        return {job: each.alone_s for job, each in self.isolated.items()}


def make_reference(run: Run) -> Reference:
    """Simulate the schedules for every repetition of a run.

    Compute times and starts are those recorded in the baseline variant (all variants of a
    repetition draw the same ones); where another variant has more of a repetition, they are taken
    from that one.
    """
    if "fabric" in run.experiment.document:
        return _over_fabric(run)
    jobs = run.job_names
    reference = Reference(isolated_jobs(run, {job: _bursts_of(run, job) for job in jobs}))
    without = [job for job in jobs if job not in reference.isolated]
    if not jobs:
        return reference
    if without:
        reference.problems.append(
            f"What {', '.join(without)} need alone isn't known, as neither a link's rate nor a "
            "isolated run with these parameters says it: bound and fair are not computed."
        )
        return reference
    groups = link_groups(run, jobs)
    unlike = _unlike_the_schedules(run)
    if unlike:
        reference.problems.append(
            f"{unlike}, which the schedules don't model: bound and fair are not computed."
        )
        groups = [[job] for job in jobs]
        wanted: tuple[Schedule, ...] = ("alone",)
    elif groups is None:
        reference.problems.append(
            "Some jobs use the link in one direction and some in both: bound and fair are not "
            "computed."
        )
        groups = [[job] for job in jobs]
        wanted = ("alone",)
    else:
        wanted = SCHEDULES
        if all(len(group) == 1 for group in groups):
            reference.problems.append(
                "No two jobs share the link in one direction: bound and fair equal each job alone."
            )
    tables: dict[Schedule, list[tuple[pd.DataFrame, pd.DataFrame]]] = {name: [] for name in wanted}
    for repetition, source in _sources(run).items():
        simulated = {job.name: job for job in _simulated_jobs(run, source, repetition, reference)}
        for group in groups:
            members = [simulated[job] for job in group if job in simulated]
            for name in wanted:
                if members:
                    bursts = simulate(name, members)
                    iterations = iterations_of(bursts, members)
                    tables[name].append(
                        (
                            iterations.assign(repetition=repetition),
                            bursts.assign(repetition=repetition),
                        )
                    )
    for name, parts in tables.items():
        if parts:
            reference.iterations[name] = pd.concat([p[0] for p in parts], ignore_index=True)
            reference.bursts[name] = pd.concat([p[1] for p in parts], ignore_index=True)
    return reference


def _over_fabric(run: Run) -> Reference:
    reference = Reference()
    reference.iterations = fabric_schedules(run, reference.problems)
    reference.bursts = {name: bursts_of(rows) for name, rows in reference.iterations.items()}
    if "alone" in reference.iterations:
        reference.isolated = isolated_of(run, reference.iterations["alone"])
    return reference


def _unlike_the_schedules(run: Run) -> str | None:
    """Return the reason why a burst alone doesn't show how long the link is taken, if any."""
    if run.experiment.neighbours:
        return "Neighbours share the link"
    return None


def link_groups(run: Run, jobs: Sequence[str]) -> list[list[str]] | None:
    """Jobs that compete with each other: those that send in the same direction of the link.

    None when some use both directions and others one, which the schedules don't model.
    """
    known = run.experiment.jobs
    by_direction: dict[str, list[str]] = {}
    for job in jobs:
        direction = known[job].direction if job in known else "send"
        by_direction.setdefault(direction, []).append(job)
    if "both" in by_direction and len(by_direction) > 1:
        return None
    return list(by_direction.values())


def _sources(run: Run) -> dict[int, str]:
    """Repetition -> the variant whose compute times stand for it."""
    in_variants = run.iterations[run.iterations["variant"] != ALONE]
    rows = in_variants.groupby(["repetition", "variant"]).size()
    sources = {}
    for repetition in sorted(set(in_variants["repetition"])):
        counts = rows.loc[repetition]
        best = counts.idxmax()
        baseline = run.baseline
        full = baseline in counts.index and counts[baseline] == counts[best]
        sources[int(repetition)] = str(baseline if full else best)
    return sources


def _simulated_jobs(
    run: Run, variant: str, repetition: int, reference: Reference
) -> list[ScheduledJob]:
    table = run.iterations
    table = table[(table["variant"] == variant) & (table["repetition"] == repetition)]
    jobs = []
    for name, rows in table.groupby("job"):
        rows = rows.set_index("iteration").sort_index()
        # An iteration lost to damage still took place: it gets the job's mean compute time.
        every = rows["compute_s"].reindex(range(1, int(rows.index.max()) + 1))
        view = run.experiment.jobs.get(str(name))
        first = rows.iloc[0]
        jobs.append(
            ScheduledJob(
                name=str(name),
                start_s=float(first["start_s"]) if rows.index[0] == 1 else 0.0,
                compute_s=[float(value) for value in every.fillna(every.mean())],
                isolated_comm_s=reference.isolated[str(name)].needs_s,
                bursts=reference.isolated[str(name)].bursts,
                links=(view.links if view else ()) or ("link",),
                latency_s=reference.isolated[str(name)].latency_s,
            )
        )
    return jobs


def _bursts_of(run: Run, job: str) -> int:
    """Bursts per iteration, from the tables."""
    rows = run.bursts[(run.bursts["variant"] != ALONE) & (run.bursts["job"] == job)]
    return int(rows["burst"].max()) if len(rows) else 1
