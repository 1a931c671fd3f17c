# SPDX-License-Identifier: BSD-2-Clause
"""A run folder in memory. What a run that ended early lacks becomes problems in the report."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from mltcp_tools.base.errors import UsageError
from mltcp_tools.lab.experiments.variants import ALONE
from mltcp_tools.lab.runs.described import DescribedExperiment, read_described
from mltcp_tools.lab.runs.folder import read_document
from mltcp_tools.lab.runs.tables import TABLES, read_table

ENVIRONMENT_SCHEMA = "mltcp-environment/1"


@dataclass(frozen=True)
class Run:
    """Everything a run folder holds.

    path: the folder. environment: environment.json. iterations, bursts, samples, flow_events,
    variants, bulk, requests: the tables, without rows when missing; times are seconds from the
    start of the variant in its repetition. problems: sentences on missing parts.
    """

    path: Path
    experiment: DescribedExperiment
    environment: dict[str, Any]
    iterations: pd.DataFrame
    bursts: pd.DataFrame
    samples: pd.DataFrame
    flow_events: pd.DataFrame
    variants: pd.DataFrame
    disturbance: pd.DataFrame
    bulk: pd.DataFrame
    requests: pd.DataFrame
    problems: list[str] = field(default_factory=list)

    @property
    def variant_names(self) -> list[str]:
        """Variants that have iterations, in the experiment's order; without `alone`."""
        measured = set(self.iterations["variant"])
        return [name for name in self.experiment.variants if name in measured]

    @property
    def job_names(self) -> list[str]:
        """Jobs that have iterations in a variant, in the experiment's order."""
        measured = set(self.iterations["job"][self.iterations["variant"] != ALONE])
        return [name for name in self.experiment.jobs if name in measured]

    @property
    def baseline(self) -> str | None:
        """The variant that others are compared with: the experiment's, else cubic, else the
        first."""
        names = self.variant_names
        for name in (self.experiment.baseline, "cubic"):
            if name in names:
                return name
        return names[0] if names else None

    def base_of(self, variant: str) -> str | None:
        """The variant that `variant` is compared with, if it has iterations."""
        base = self.experiment.base_of(variant)
        return base if base in self.variant_names else None


def load_run(path: str | Path) -> Run:
    """Load a run folder; a UsageError names what isn't one, or a file in it that can't be read."""
    folder = Path(path)
    if not (folder / "experiment.yaml").is_file():
        raise UsageError(
            f"{folder} is not a run folder: it has no experiment.yaml; name a folder written by"
            " `mltcp testbed run`, `mltcp simulate` or `mltcp lab record`."
        )
    experiment = read_described(folder / "experiment.yaml")
    environment = read_document(folder / "environment.json", ENVIRONMENT_SCHEMA)
    tables = {name: read_table(folder, name) for name in TABLES}
    if experiment.recorded:  # its name has all congestion controls that it came to see
        (variant,) = experiment.variants
        tables = {name: table.assign(variant=variant) for name, table in tables.items()}
    _check_names(folder, tables["iterations"], experiment)
    problems: list[str] = []
    run = Run(folder, experiment, environment, problems=problems, **tables)
    problems += [*_how_it_ended(run), *_incomplete(run)]
    return run


def _check_names(folder: Path, iterations: pd.DataFrame, experiment: DescribedExperiment) -> None:
    variants, jobs = set(iterations["variant"]) - {ALONE}, set(iterations["job"])
    if unknown := sorted({*(variants - set(experiment.variants)), *(jobs - set(experiment.jobs))}):
        raise UsageError(f"{folder}: its experiment.yaml doesn't have {', '.join(unknown)}.")


def _how_it_ended(run: Run) -> list[str]:
    outcome = run.environment.get("outcome", "finished")
    if outcome == "finished":
        return []
    if outcome == "running":
        return ["The run was killed, or is still going on."]
    return [f"The run ended early: {str(outcome).rstrip('.')}."]


def _incomplete(run: Run) -> list[str]:
    """Sentences on parts of the experiment that the tables lack."""
    experiment, variants = run.experiment, run.variant_names
    if run.iterations.empty:
        return []
    sentences = [
        f"The variant {variant} has no iterations."
        for variant in experiment.variants
        if variant not in variants
    ]
    if experiment.baseline and experiment.baseline not in variants and run.baseline:
        sentences.append(f"The variant {run.baseline} stands in for the baseline.")
    if ALONE not in set(run.iterations["variant"]) and not experiment.recorded:
        without = "" if experiment.links else ", and with it bound, fair and captured gains"
        sentences.append(f"The variant alone is missing{without}.")
    tables = {
        key: rows
        for key, rows in run.iterations.groupby(["variant", "repetition"])
        if key[0] != ALONE
    }
    repetitions = experiment.repetitions or int(run.iterations["repetition"].max())
    for variant in variants:
        missing = [str(r) for r in range(1, repetitions + 1) if (variant, r) not in tables]
        if missing:
            sentences.append(f"Variant {variant} lacks repetition {', '.join(missing)}.")
    for key, rows in tables.items():
        where = f"Variant {key[0]}, repetition {key[1]}"
        sentences.extend(f"{where} {what}." for what in _gaps(run, rows))
    return sentences


def _gaps(run: Run, rows: pd.DataFrame) -> list[str]:
    """Return the gaps in one variant's iterations of one repetition."""
    found = []
    last = {str(job): int(own.max()) for job, own in rows.groupby("job")["iteration"]}
    absent = [job for job in run.experiment.jobs if job not in last]
    if absent:
        found.append(f"lacks {', '.join(absent)}")
    planned = {name: run.experiment.iterations_of(name) for name in run.experiment.jobs}
    share = {job: number / (planned[job] or number) for job, number in last.items()}
    shortest = min(share, key=lambda job: share[job])
    if share[shortest] < 1:
        found.append(f"stops at iteration {last[shortest]} of {planned[shortest]} ({shortest})")
    return found
