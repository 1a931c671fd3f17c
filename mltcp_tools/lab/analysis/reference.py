# SPDX-License-Identifier: BSD-2-Clause
"""From a run to the schedules it is measured against: `alone`, `bound`, `fair` (schedules.py)."""

from __future__ import annotations

from dataclasses import dataclass, field

import pandas as pd

from mltcp_tools.lab.analysis.isolated import Isolated, isolated_jobs
from mltcp_tools.lab.analysis.patterned import bursts_of, fabric_schedules, isolated_of
from mltcp_tools.lab.experiments.variants import ALONE
from mltcp_tools.lab.runs.run import Run
from mltcp_tools.lab.simulator.schedules import (
    SCHEDULES,
    Schedule,
    ScheduledJob,
    iterations_of,
    simulate_bursts,
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
        """Job -> communication time of an undisturbed iteration, seconds."""
        return {job: each.alone_s for job, each in self.isolated.items()}


def make_reference(run: Run) -> Reference:
    """Simulate the schedules for every repetition of a run.

    Compute times and starts are those recorded in the baseline variant (all variants of a
    repetition draw the same ones), or in the variant that has most iterations of the repetition.
    """
    if "fabric" in run.experiment.document:
        return _over_fabric(run)
    jobs = run.job_names
    reference = Reference(isolated_jobs(run))
    without = [job for job in jobs if job not in reference.isolated]
    if not jobs:
        return reference
    if without:
        reference.problems.append(
            f"The needs of {', '.join(without)} are unknown, as there is neither a link's rate nor"
            " an isolated run with these parameters: bound and fair are not computed."
        )
        return reference
    unmodelled = _unmodelled(run)
    if unmodelled:
        reference.problems.append(
            f"{unmodelled}, which the schedules don't model: bound and fair are not computed."
        )
    parts: dict[Schedule, list[tuple[pd.DataFrame, pd.DataFrame]]] = {}
    for repetition, source in _sources(run).items():
        simulated = _simulated_jobs(run, source, repetition, reference)
        for name in ("alone",) if unmodelled else SCHEDULES:
            bursts = simulate_bursts(name, simulated)
            tables = (iterations_of(bursts, simulated), bursts)
            one, two = (table.assign(repetition=repetition) for table in tables)
            parts.setdefault(name, []).append((one, two))
    for name, pairs in parts.items():
        reference.iterations[name] = pd.concat([one for one, _ in pairs], ignore_index=True)
        reference.bursts[name] = pd.concat([two for _, two in pairs], ignore_index=True)
    return reference


def _over_fabric(run: Run) -> Reference:
    reference = Reference()
    reference.iterations = fabric_schedules(run)
    reference.bursts = {name: bursts_of(rows) for name, rows in reference.iterations.items()}
    if "alone" in reference.iterations:
        reference.isolated = isolated_of(run, reference.iterations["alone"])
    return reference


def _unmodelled(run: Run) -> str | None:
    """Return the reason why the bursts don't take turns on one link, if any."""
    if run.experiment.neighbours:
        return "Neighbours share the link"
    if len({run.experiment.jobs[job].direction for job in run.job_names}) > 1:
        return "Some jobs use the link in one direction and some in both"
    return None


def _sources(run: Run) -> dict[int, str]:
    """Repetition -> the variant that provides its compute times."""
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
        first = rows.iloc[0]
        jobs.append(
            ScheduledJob(
                name=str(name),
                start_s=float(first["start_s"]) if rows.index[0] == 1 else 0.0,
                compute_s=[float(value) for value in rows["compute_s"]],
                isolated_comm_s=reference.isolated[str(name)].needs_s,
                bursts=reference.isolated[str(name)].bursts,
                links=run.experiment.jobs[str(name)].links or ("link",),
                latency_s=reference.isolated[str(name)].latency_s,
            )
        )
    return jobs
