# SPDX-License-Identifier: BSD-2-Clause
"""A run folder in memory; missing and damaged parts become problems in the report."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from mltcp_tools.base.errors import UsageError
from mltcp_tools.kernel.congestion_controls import is_mltcp
from mltcp_tools.lab.experiments.variants import ALONE
from mltcp_tools.lab.runs.described import DescribedExperiment, read_experiment
from mltcp_tools.lab.runs.tables import TABLES, empty_table, read_table

ENVIRONMENT_SCHEMA = "mltcp-environment/1"


@dataclass(frozen=True)
class Run:
    """Everything a run folder holds.

    path: the folder. environment: environment.json, or {}. iterations, bursts, samples,
    flow_events, variants, bulk, requests: the tables, without rows when missing; times are seconds
    from the start of the variant in its repetition. problems: sentences on missing or damaged
    parts.
    """

    path: Path
    experiment: DescribedExperiment = field(default_factory=DescribedExperiment)
    environment: dict[str, Any] = field(default_factory=dict)
    iterations: pd.DataFrame = field(default_factory=lambda: empty_table("iterations"))
    bursts: pd.DataFrame = field(default_factory=lambda: empty_table("bursts"))
    samples: pd.DataFrame = field(default_factory=lambda: empty_table("samples"))
    flow_events: pd.DataFrame = field(default_factory=lambda: empty_table("flow_events"))
    variants: pd.DataFrame = field(default_factory=lambda: empty_table("variants"))
    disturbance: pd.DataFrame = field(default_factory=lambda: empty_table("disturbance"))
    bulk: pd.DataFrame = field(default_factory=lambda: empty_table("bulk"))
    requests: pd.DataFrame = field(default_factory=lambda: empty_table("requests"))
    problems: list[str] = field(default_factory=list)

    @property
    def variant_names(self) -> list[str]:
        """Variants that have iterations, in the experiment's order, then others; without
        `alone`."""
        measured = list(dict.fromkeys(self.iterations["variant"]))
        ordered = [name for name in self.experiment.variants if name in measured]
        return ordered + [name for name in measured if name not in ordered and name != ALONE]

    @property
    def job_names(self) -> list[str]:
        """Jobs that have iterations in a variant, in the experiment's order, then others."""
        in_variants = self.iterations[self.iterations["variant"] != ALONE]
        measured = list(dict.fromkeys(in_variants["job"]))
        ordered = [name for name in self.experiment.jobs if name in measured]
        return ordered + [name for name in measured if name not in ordered]

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
    """Load a run folder.

    Raises UsageError when `path` is not a run folder at all: not a folder, or one with neither an
    experiment.yaml nor a table. Anything less is a sentence in `Run.problems`.
    """
    folder = Path(path)
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "does not exist"
        raise UsageError(f"{folder} {what}; name a folder written by `mltcp testbed run`.")
    known = ["experiment.yaml", *(f"{name}.csv" for name in TABLES)]
    if not any((folder / name).is_file() for name in known):
        raise UsageError(
            f"{folder} is not a run folder: it has no experiment.yaml and no table of iterations; "
            "name a folder written by `mltcp testbed run`."
        )
    problems: list[str] = []
    experiment = read_experiment(folder / "experiment.yaml", problems)
    environment = _read_environment(folder / "environment.json", problems)
    tables: dict[str, pd.DataFrame] = {}
    for name in TABLES:
        if not _expects(name, folder, experiment):
            continue
        tables[name] = read_table(folder, name, problems)
    run = Run(folder, experiment, environment, problems=problems, **tables)
    problems.extend([*_how_it_ended(run), *_incomplete(run)])
    return run


def _expects(name: str, folder: Path, experiment: DescribedExperiment) -> bool:
    """Return whether the run has, or should have, the table.

    Events of the kernel come from MLTCP variants only, bulk flows and requests from neighbours, and
    TCP samples from a testbed, not from a recording of attached jobs.
    """
    if (folder / f"{name}.csv").is_file():
        return True
    if name == "flow_events":
        return any(is_mltcp(str(variant.get("cc", ""))) for variant in experiment.variants.values())
    if name in ("bulk", "requests"):
        return any(
            (each.size is not None) == (name == "requests")
            for each in experiment.neighbours.values()
        )
    return name != "disturbance" and (name != "samples" or not experiment.recorded)


def _read_environment(path: Path, problems: list[str]) -> dict[str, Any]:
    if not path.is_file():
        problems.append(f"{path.name} is missing.")
        return {}
    try:
        document = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except (ValueError, OSError):
        problems.append(f"{path.name} is not readable JSON.")
        return {}
    if not isinstance(document, dict):
        problems.append(f"{path.name} describes no environment.")
        return {}
    schema = document.get("schema")
    if schema != ENVIRONMENT_SCHEMA:
        problems.append(
            f"{path.name} has the schema {schema!r}, not {ENVIRONMENT_SCHEMA!r}; the run may come "
            "from another version, and is read as if it came from this one."
        )
    return document


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
    absent = [job for job in (run.experiment.jobs or run.job_names) if job not in last]
    if absent:
        found.append(f"lacks {', '.join(absent)}")
    planned = {name: run.experiment.iterations_of(name) for name in run.experiment.jobs}
    share = {job: number / (planned.get(job) or number) for job, number in last.items()}
    shortest = min(share, key=lambda job: share[job])
    if share[shortest] < 1:
        found.append(f"stops at iteration {last[shortest]} of {planned[shortest]} ({shortest})")
    holes = sum(last.values()) - len(rows)
    if holes:
        found.append(f"lacks {holes} iterations in between")
    return found
