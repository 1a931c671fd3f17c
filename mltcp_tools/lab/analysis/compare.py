# SPDX-License-Identifier: BSD-2-Clause
"""Two runs against each other: variants of equal names, and what else differs.

The document, schema `mltcp-comparison/1` (times in seconds; `estimate` as in result.py):

    schema          "mltcp-comparison/1"
    runs            [name of the first run folder, of the second]
    jobs            the jobs that both have, by name: nothing else is compared
    iterations      iterations per job that are compared: those up to the end of the shorter run
    variants            {variant: entry} for the variants that both have
        mean_s, p99_s       [first, second]: iteration times
        speedup             {mean, p99}: estimates: times faster the second run is, or null
        captured_gain       [first, second]: estimates, or null
        gain_difference     estimate: second captured gain minus first, or null
        overlap             [first, second], or null each
        jobs                {job: {mean_s, p99_s, speedup}}: the same of each job
    conditions      [sentence]: how the conditions of two recordings differ
    verdict         [sentence]: what the comparison says, variant by variant; none where conditions
    changed schedules       {bound, fair, alone: {mean_s: [first, second], p99_s: [first, second]}}
    only_in         [variants that only the first has, variants that only the second has]
    differences     {experiment, environment: [{key, first, second}]}: nested keys joined by dots
    warnings, problems      [sentence], each naming its run

The two runs are resampled independently of each other, also where their compute times are the same.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from mltcp_tools.base.cells import WIDTH, bullets, clip, interval, number, plain_text, table
from mltcp_tools.lab.analysis import bootstrap, metrics
from mltcp_tools.lab.analysis.reference import Reference, make_reference
from mltcp_tools.lab.analysis.result import Result, plain
from mltcp_tools.lab.analysis.summary import summarise_with
from mltcp_tools.lab.analysis.undisturbed import Quiet, undisturbed
from mltcp_tools.lab.analysis.verdict import changed_conditions, verdict
from mltcp_tools.lab.runs.run import Run

SCHEMA = "mltcp-comparison/1"

# Names of namespaces begin with the id of their run: mltcp-0c1854-router/bottleneck.
_NAMESPACE = re.compile(r"^mltcp-[0-9a-f]+-")
# Differ between any two runs and explain nothing.
_ALWAYS_DIFFERENT = ("start", "end", "load", "command", "warnings", "conditions")


def compare_runs(first: Run, second: Run) -> dict[str, Any]:
    """Compare two runs (see the module's text)."""
    first, second = _aligned(first, second)
    quiet = (undisturbed(first), undisturbed(second))
    runs = (quiet[0].run, quiet[1].run)
    references = [make_reference(run) for run in runs]
    results = [
        summarise_with(each, reference, metrics.SETTLED_FROM)
        for each, reference in zip(quiet, references, strict=True)
    ]
    names = [run.variant_names for run in runs]
    common = [variant for variant in names[0] if variant in names[1]]
    jobs, other_jobs = _jobs(runs)
    iterations = _shared_iterations(runs)
    sides = [
        _Side(each, reference, jobs, iterations, bootstrap.SEED + index)
        for index, (each, reference) in enumerate(zip(quiet, references, strict=True))
    ]
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "runs": [str(run.path) for run in runs],
        "jobs": jobs,
        "iterations": iterations,
        "variants": {variant: _variant(variant, sides, results) for variant in common}
        if jobs
        else {},
        "conditions": changed_conditions(first, second),
        "schedules": _schedules(sides),
        "only_in": [
            [variant for variant in names[0] if variant not in common],
            [variant for variant in names[1] if variant not in common],
        ],
        "differences": {
            "experiment": differences(first.experiment.document, second.experiment.document),
            "environment": [
                each
                for each in differences(first.environment, second.environment)
                if not str(each["key"]).split(".")[0].startswith(_ALWAYS_DIFFERENT)
            ],
        },
    }
    for kind in ("warnings", "problems"):
        document[kind] = [
            f"{which} run: {sentence}"
            for which, result in zip(("First", "Second"), results, strict=True)
            for sentence in getattr(result, kind)
        ]
        if kind == "problems" and not common:
            document[kind].append("The runs have no variant in common.")
    if not jobs:
        document["problems"].append("The runs have no job in common, so nothing is compared.")
    elif other_jobs:
        document["warnings"].append(
            f"Only jobs that both runs have are compared, not {', '.join(other_jobs)}."
        )
    document = plain(document)
    return document | {"verdict": verdict(document)}


def _aligned(first: Run, second: Run) -> tuple[Run, Run]:
    """The runs; of two recordings, one before and one after a change, the variants are one."""
    names = [run.variant_names for run in (first, second)]
    recorded = first.experiment.recorded and second.experiment.recorded
    if not recorded or any(len(each) != 1 for each in names) or names[0] == names[1]:
        return first, second
    variant = " → ".join(each[0] for each in names)
    return _renamed(first, variant), _renamed(second, variant)


def _renamed(run: Run, variant: str) -> Run:
    """The run with its only variant under another name."""
    tables = {
        name: getattr(run, name) for name in ("iterations", "bursts", "flow_events", "variants")
    }
    (described,) = run.experiment.variants.values() or ({},)
    experiment = replace(run.experiment, variants={variant: described}, baseline=variant)
    changed = {name: table.assign(variant=variant) for name, table in tables.items()}
    return replace(run, experiment=experiment, **changed)


def _jobs(runs: tuple[Run, Run]) -> tuple[list[str], list[str]]:
    """Names of the jobs that iterated in both runs, and of those that did in one only."""
    first, second = (set(run.job_names) for run in runs)
    return sorted(first & second), sorted(first ^ second)


def _shared_iterations(runs: tuple[Run, Run]) -> int:
    last = [
        run.iterations.loc[run.iterations["variant"].isin(run.variant_names), "iteration"].max()
        for run in runs
    ]
    return 0 if any(pd.isna(each) for each in last) else int(min(last))


class _Side:
    """One run's tables, cut to the compared iterations, and their replicates."""

    def __init__(
        self, quiet: Quiet, reference: Reference, jobs: list[str], iterations: int, seed: int
    ) -> None:
        run = quiet.run
        self.run, self.seed, self.discarded, self.jobs = run, seed, quiet.discarded, jobs
        table = run.iterations[run.iterations["iteration"] <= iterations]
        table = table[table["job"].isin(jobs)]
        self.variants = {
            variant: table[table["variant"] == variant] for variant in run.variant_names
        }
        self.schedules: dict[str, pd.DataFrame] = {
            name: rows[(rows["iteration"] <= iterations) & rows["job"].isin(jobs)]
            for name, rows in reference.iterations.items()
        }

    def replicates(self, *tables: pd.DataFrame) -> list[bootstrap.Replicates] | None:
        """Replicates of tables of this run, on the iterations that all of them have."""
        cubes = bootstrap.cubes(list(tables))
        mask = bootstrap.shared(*cubes)
        found = [bootstrap.replicate(np.where(mask, cube, np.nan), self.seed) for cube in cubes]
        kept = [each for each in found if each is not None]
        return kept if len(kept) == len(found) else None

    def gain(self, variant: str) -> tuple[float, metrics.Floats] | None:
        """Captured gain of a variant and its replicates."""
        base, bound = self.run.baseline, self.schedules.get("bound")
        if (
            base is None
            or base == variant
            or bound is None
            or {base, variant} & set(self.discarded)
        ):
            return None
        parts = self.replicates(self.variants[base], self.variants[variant], bound)
        if parts is None:
            return None
        return bootstrap.gain_of_means(*parts)


def _variant(variant: str, sides: list[_Side], results: list[Result]) -> dict[str, Any]:
    found = [
        metrics.distribution(metrics.iteration_times(side.variants[variant])) for side in sides
    ]
    one, two = (side.replicates(side.variants[variant]) for side in sides)
    gains = [side.gain(variant) for side in sides]
    difference = None
    if gains[0] and gains[1]:
        difference = bootstrap.estimate(gains[1][0] - gains[0][0], gains[1][1] - gains[0][1])
    estimates = [bootstrap.estimate(*gain) if gain else None for gain in gains]
    overlaps = [result.variants[variant].overlap for result in results]
    return {
        "mean_s": [each.mean if each else None for each in found],
        "p99_s": [each.p99 if each else None for each in found],
        "speedup": bootstrap.combine(bootstrap.speedup, one[0], two[0])
        if one and two and not any(variant in side.discarded for side in sides)
        else None,
        "captured_gain": estimates,
        "gain_difference": difference,
        "overlap": [each.run if each else None for each in overlaps],
        "jobs": {job: _job(variant, job, sides) for job in sides[0].jobs},
    }


def _job(variant: str, job: str, sides: list[_Side]) -> dict[str, Any]:
    """One job's iteration times in both runs."""
    tables = [side.variants[variant][side.variants[variant]["job"] == job] for side in sides]
    found = [metrics.distribution(metrics.iteration_times(table)) for table in tables]
    one, two = (side.replicates(table) for side, table in zip(sides, tables, strict=True))
    discarded = any(variant in side.discarded for side in sides)
    return {
        "mean_s": [each.mean if each else None for each in found],
        "p99_s": [each.p99 if each else None for each in found],
        "speedup": bootstrap.combine(bootstrap.speedup, one[0], two[0])
        if one and two and not discarded
        else None,
    }


def _schedules(sides: list[_Side]) -> dict[str, dict[str, list[float | None]]]:
    schedules = {}
    for name in ("bound", "fair", "alone"):
        tables = [side.schedules.get(name) for side in sides]
        if any(rows is not None for rows in tables):
            found = [
                metrics.distribution(metrics.iteration_times(rows)) if rows is not None else None
                for rows in tables
            ]
            schedules[name] = {
                "mean_s": [each.mean if each else None for each in found],
                "p99_s": [each.p99 if each else None for each in found],
            }
    return schedules


def differences(first: object, second: object, key: str = "") -> list[dict[str, Any]]:
    """Return the differences of two documents: [{key, first, second}], None where one lacks the
    key.

    Entries of lists are told apart by their `name` where they have one, else by their place.
    """
    if first == second:
        return []
    one, two = _children(first), _children(second)
    if one is None or two is None:
        return [{"key": key, "first": first, "second": second}]
    found = []
    for name in dict.fromkeys([*one, *two]):
        inner = f"{key}.{name}" if key else name
        found.extend(differences(one.get(name), two.get(name), inner))
    return found


def _children(value: object) -> dict[str, object] | None:
    """Return the content of a document, by key; None where it is a plain value."""
    if isinstance(value, Mapping):
        return {_NAMESPACE.sub("", str(key)): each for key, each in value.items()}
    if isinstance(value, list):
        return {
            str(each.get("name", place) if isinstance(each, Mapping) else place): each
            for place, each in enumerate(value, start=1)
        }
    return None


def render_comparison(document: Mapping[str, Any]) -> str:
    """A comparison as text for a terminal, at most 100 columns wide."""
    first, second = document["runs"]
    parts = [f"first:  {first}\nsecond: {second}"]
    head = ("variant", "mean ms", "→", "p99 ms", "→", "x mean", "x p99", "gain", "→", "olap", "→")

    def pair(values: list[float | None], form: str, scale: float = 1.0) -> list[str]:
        return [number(None if each is None else each * scale, form) for each in values]

    rows: list[list[str] | None] = []
    for variant, entry in document["variants"].items():
        speedup = entry["speedup"] or {}
        gains = [gain["value"] if gain else None for gain in entry["captured_gain"]]
        rows.append(
            [
                clip(variant),
                *pair(entry["mean_s"], ".1f", 1e3),
                *pair(entry["p99_s"], ".1f", 1e3),
                *(number((speedup.get(key) or {}).get("value"), ".3f") for key in ("mean", "p99")),
                *pair(gains, ".2f"),
                *pair(entry["overlap"], ".0%"),
            ]
        )
    if document["schedules"]:
        rows.append(None)
    for name, entry in document["schedules"].items():
        times = [*pair(entry["mean_s"], ".1f", 1e3), *pair(entry["p99_s"], ".1f", 1e3)]
        rows.append([name, *times, *[""] * 6])
    if document["variants"]:
        parts.append(table(head, rows))
        parts.append(
            textwrap.fill(
                f"First run → second run, iterations 1 to {document['iterations']}. x: times "
                "faster the second run is. gain: captured gain. olap: overlap.",
                WIDTH,
            )
        )
        parts.append(
            table(
                ("variant", "x mean [95 %]", "x p99 [95 %]", "gain, second - first [95 %]"),
                [
                    [
                        clip(variant),
                        *(
                            interval((entry["speedup"] or {}).get(key), ".3f")
                            for key in ("mean", "p99")
                        ),
                        interval(entry["gain_difference"]),
                    ]
                    for variant, entry in document["variants"].items()
                ],
            )
        )
    if len(document["jobs"]) > 1:
        parts.append(_jobs_table(document))
    for which, variants in zip(("first", "second"), document["only_in"], strict=True):
        if variants:
            parts.append(f"Only the {which} run has the variants {', '.join(variants)}.")
    for what, found in document["differences"].items():
        if found:
            lines = [f"{d['key']}: {_shown(d['first'])} → {_shown(d['second'])}" for d in found]
            parts.append("\n".join([f"Differences in the {what}", *bullets(lines)]))
        else:
            parts.append(f"No differences in the {what}.")
    for heading in ("warnings", "problems"):
        if document[heading]:
            parts.append("\n".join([heading.capitalize(), *bullets(document[heading])]))
    for heading, key in (("Conditions changed", "conditions"), ("In short", "verdict")):
        if document[key]:
            parts.append("\n".join([heading, *bullets(document[key])]))
    return "\n\n".join(parts) + "\n"


def _jobs_table(document: Mapping[str, Any]) -> str:
    """Each job of each variant, in both runs."""
    head = ("variant", "job", "mean ms", "→", "p99 ms", "→", "x mean [95 %]")
    rows: list[list[str] | None] = [
        [
            clip(variant),
            clip(job),
            *(
                number(None if each is None else each * 1e3, ".1f")
                for each in (*values["mean_s"], *values["p99_s"])
            ),
            interval((values["speedup"] or {}).get("mean"), ".3f"),
        ]
        for variant, entry in document["variants"].items()
        for job, values in entry["jobs"].items()
    ]
    return table(head, rows)


def _shown(value: object) -> str:
    return "(none)" if value is None else textwrap.shorten(plain_text(value), 60, placeholder="…")
