# SPDX-License-Identifier: BSD-2-Clause
"""The repetitions of variants that can be compared: those that were not disturbed.

A disturbed repetition of a variant is left out where the variant has others. A variant that was
disturbed in all of them keeps its figures, to look at, and is compared with nothing.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from mltcp_tools.lab.experiments.variants import ALONE
from mltcp_tools.lab.runs.disturbance import Disturbance, judge
from mltcp_tools.lab.runs.run import Run
from mltcp_tools.lab.runs.tables import TABLES

Key = tuple[str, int]
INSTEAD = "use `mltcp simulate`, or a VM in virtual time"
"""Advice for a host that is never quiet."""


@dataclass(frozen=True)
class Quiet:
    """A run without its disturbed parts.

    run: without the disturbed repetitions of variants that have others. found: (variant,
    repetition) -> its disturbance, where that was watched. discarded: variants disturbed in every
    repetition.
    """

    run: Run
    found: dict[Key, Disturbance] = field(default_factory=dict)
    discarded: tuple[str, ...] = ()

    def of(self, variant: str) -> list[Disturbance]:
        """Return the known disturbances of the variant's repetitions."""
        return [each for (name, _), each in self.found.items() if name == variant]

    def sentences(self) -> list[str]:
        """Return sentences on repetitions left out and on variants that can't be compared."""
        said = []
        for (variant, repetition), each in self.found.items():
            if each.disturbed and variant not in self.discarded and variant != ALONE:
                said.append(
                    f"{variant}, repetition {repetition}, is left out, as it was disturbed: "
                    f"{each.sentence()}."
                )
        for variant in self.discarded:
            worst = max(self.of(variant), key=lambda each: each.share)
            said.append(
                f"{variant} can't be compared, as it was disturbed in every repetition: "
                f"{worst.sentence()}; {INSTEAD}."
            )
        return said


def undisturbed(run: Run) -> Quiet:
    """The comparable part of a run; all of it where disturbance wasn't watched."""
    found: dict[Key, Disturbance] = {}
    for key, rows in run.disturbance.groupby(["variant", "repetition"], sort=False):
        variant, repetition = str(key[0]), int(rows["repetition"].iloc[0])
        last = int(rows["attempt"].max())
        judged = judge(rows[rows["attempt"] == last].to_dict("records"), last)
        if judged is not None:
            found[variant, repetition] = judged
    bad = {key for key, each in found.items() if each.disturbed}
    measured = set(zip(run.iterations["variant"], run.iterations["repetition"], strict=True))
    discarded = tuple(
        variant
        for variant in run.variant_names
        if all((variant, repetition) in bad for name, repetition in measured if name == variant)
    )
    # Isolated jobs are judged by their best iterations, so all of these stay.
    out = {key for key in bad if key[0] not in (*discarded, ALONE)}
    if not out:
        return Quiet(run, found, discarded)
    tables: dict[str, Any] = {
        name: _without(getattr(run, name), out) for name in TABLES if name != "disturbance"
    }
    return Quiet(dataclasses.replace(run, **tables), found, discarded)


def _without(table: pd.DataFrame, keys: set[Key]) -> pd.DataFrame:
    kept = [key not in keys for key in zip(table["variant"], table["repetition"], strict=True)]
    return table[pd.Series(kept, index=table.index, dtype=bool)]
