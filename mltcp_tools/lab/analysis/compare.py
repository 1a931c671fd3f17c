# SPDX-License-Identifier: BSD-2-Clause
"""Two runs against each other: variants of equal names, and what else differs.

The document, schema `mltcp-comparison/1` (times in seconds; `estimate` as in result.py):

    schema          "mltcp-comparison/1"
    runs            [path of the first run folder, of the second]
    jobs            the jobs that both runs have, by name: only these are compared
    iterations      iterations per job that are compared: those up to the end of the shorter run
    variants        {variant: entry} for the variants that both have
        mean_s, p99_s       [first, second]: iteration times
        speedup             {mean, p99}: estimates: times faster the second run is, or null
        captured_gain       [first, second]: estimates, or null
        gain_difference     estimate: second captured gain minus first, or null
        jobs                {job: {mean_s, p99_s, speedup}}: the same of each job
    conditions      [sentence]: differences in the conditions of two recordings
    verdict         [sentence]: the result for each variant, unless conditions changed
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
from mltcp_tools.lab.analysis.result import plain
from mltcp_tools.lab.analysis.summary import summarise_with
from mltcp_tools.lab.analysis.undisturbed import Quiet, undisturbed
from mltcp_tools.lab.runs.run import Run
from mltcp_tools.live.observe.conditions import unlike

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
        summarise_with(each, reference) for each, reference in zip(quiet, references, strict=True)
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
        "variants": {variant: _variant(variant, sides) for variant in common} if jobs else {},
        "conditions": _changed_conditions(first, second),
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
    return document | {"verdict": _verdict(document)}


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
    (described,) = run.experiment.variants.values()
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
        bound = reference.iterations.get("bound")
        self.bound = (
            None
            if bound is None
            else bound[(bound["iteration"] <= iterations) & bound["job"].isin(jobs)]
        )

    def replicates(self, *tables: pd.DataFrame) -> list[bootstrap.Replicates] | None:
        """Replicates of tables of this run, on the iterations that all of them have."""
        cubes = bootstrap.cubes(list(tables))
        mask = bootstrap.shared(*cubes)
        found = [bootstrap.replicate(np.where(mask, cube, np.nan), self.seed) for cube in cubes]
        kept = [each for each in found if each is not None]
        return kept if len(kept) == len(found) else None

    def gain(self, variant: str) -> tuple[float, metrics.Floats] | None:
        """Captured gain of a variant and its replicates."""
        base, bound = self.run.baseline, self.bound
        if base in (None, variant) or bound is None or {base, variant} & set(self.discarded):
            return None
        parts = self.replicates(self.variants[str(base)], self.variants[variant], bound)
        return None if parts is None else bootstrap.gain_of_means(*parts)


def _variant(variant: str, sides: list[_Side]) -> dict[str, Any]:
    gains = [side.gain(variant) for side in sides]
    difference = None
    if gains[0] and gains[1]:
        difference = bootstrap.estimate(gains[1][0] - gains[0][0], gains[1][1] - gains[0][1])
    tables = [side.variants[variant] for side in sides]
    return _times(variant, tables, sides) | {
        "captured_gain": [bootstrap.estimate(*gain) if gain else None for gain in gains],
        "gain_difference": difference,
        "jobs": {
            job: _times(variant, [table[table["job"] == job] for table in tables], sides)
            for job in sides[0].jobs
        },
    }


def _times(variant: str, tables: list[pd.DataFrame], sides: list[_Side]) -> dict[str, Any]:
    """Iteration times of a variant, or of one of its jobs, in both runs."""
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


def _changed_conditions(first: Run, second: Run) -> list[str]:
    """Sentences on the conditions that differ between two recordings, as far as both have them."""
    one, other = (run.environment.get("conditions") for run in (first, second))
    if not (isinstance(one, Mapping) and isinstance(other, Mapping)):
        return []
    return unlike(one, other)


def _verdict(document: Mapping[str, Any]) -> list[str]:
    """A sentence for each variant: on all jobs together, and on each job that differs from that."""
    if document["conditions"]:
        return ["The conditions changed, so there is no verdict."]
    found = []
    for variant, entry in document["variants"].items():
        whole = (entry["speedup"] or {}).get("mean")
        if whole is None:
            continue
        others = [
            f"; {job} is {_changed(each)}, speed-up {interval(each, '.3f')}"
            for job, values in entry["jobs"].items()
            if (each := (values["speedup"] or {}).get("mean")) and _changed(each) != _changed(whole)
        ]
        found.append(
            f"{variant}: the second run is {_changed(whole)}, speed-up"
            f" {interval(whole, '.3f')}{''.join(others)}."
        )
    return found


def _changed(speedup: Mapping[str, float | None]) -> str:
    """A speed-up in words; not significant where its interval contains 1, or there is none."""
    low, high = speedup["low"], speedup["high"]
    if low is not None and low > 1:
        return "faster"
    if high is not None and high < 1:
        return "slower"
    return "not significantly different"


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
    entries = document["variants"]
    times = ("mean", "→", "p99", "→", "speed-up", "p99 speed-up")
    if entries:
        parts.append(f"Iteration times (ms) of iterations 1 to {document['iterations']}")
        parts.append(
            table(("variant", *times), [[clip(v), *_compared(each)] for v, each in entries.items()])
        )
    if any(each["gain_difference"] for each in entries.values()):
        head = ("variant", "captured gain", "→", "difference")
        rows = [
            [
                clip(variant),
                *(number(gain and gain["value"], ".2f") for gain in each["captured_gain"]),
                interval(each["gain_difference"]),
            ]
            for variant, each in entries.items()
        ]
        parts.append(table(head, rows))
    if len(document["jobs"]) > 1:
        jobs = [
            [clip(variant), clip(job), *_compared(each)]
            for variant, entry in entries.items()
            for job, each in entry["jobs"].items()
        ]
        parts.append(table(("variant", "job", *times), jobs))
    if entries:
        note = (
            "First run → second run. speed-up: the first run's time divided by the second's. In"
            " brackets: 95 % confidence intervals."
        )
        parts.append(textwrap.fill(note, WIDTH))
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


def _compared(entry: Mapping[str, Any]) -> list[str]:
    """Mean and p99 in both runs, milliseconds, and how many times faster the second is."""
    times = (*entry["mean_s"], *entry["p99_s"])
    speedup = entry["speedup"] or {}
    return [
        *(number(None if each is None else each * 1e3, ".1f") for each in times),
        *(interval(speedup.get(key), ".3f") for key in ("mean", "p99")),
    ]


def _shown(value: object) -> str:
    return "(none)" if value is None else textwrap.shorten(plain_text(value), 60, placeholder="…")
