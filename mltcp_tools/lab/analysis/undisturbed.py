"""The repetitions of arms that can be compared: those that nothing else on the host disturbed.

A disturbed repetition of an arm is left out where the arm has others. An arm that was disturbed in
all of them keeps its figures, to look at, and is compared with nothing.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from mltcp_tools.lab.runs.described import ALONE
from mltcp_tools.lab.runs.disturbance import Disturbance, judge
from mltcp_tools.lab.runs.run import Run
from mltcp_tools.lab.runs.tables import TABLES

Key = tuple[str, int]
INSTEAD = "`mltcp simulate` or a guest in virtual time shows it without the host"
"""The ways left on a host that is never quiet."""


@dataclass(frozen=True)
class Quiet:
    """A run without what was disturbed.

    run: it, less the disturbed repetitions of arms that have others. found: (arm, repetition) ->
    what disturbed it, of all that were watched. void: arms disturbed in every repetition.
    """

    run: Run
    found: dict[Key, Disturbance] = field(default_factory=dict)
    void: tuple[str, ...] = ()

    def of(self, arm: str) -> list[Disturbance]:
        """Return the known disturbances of the arm's repetitions."""
        return [each for (name, _), each in self.found.items() if name == arm]

    def sentences(self) -> list[str]:
        """Return sentences on what was left out and on arms that can't be compared."""
        said = []
        for (arm, repetition), each in self.found.items():
            if each.disturbed and arm not in self.void and arm != ALONE:
                said.append(
                    f"{arm}, repetition {repetition}, is left out, as it was disturbed: "
                    f"{each.sentence()}."
                )
        for arm in self.void:
            worst = max(self.of(arm), key=lambda each: each.share)
            said.append(
                f"{arm} can't be compared, as it was disturbed in every repetition: "
                f"{worst.sentence()}; {INSTEAD}."
            )
        return said


def undisturbed(run: Run) -> Quiet:
    """The run as far as it can be compared; all of it where nothing was watched."""
    found: dict[Key, Disturbance] = {}
    for key, rows in run.disturbance.groupby(["arm", "repetition"], sort=False):
        arm, repetition = str(key[0]), int(rows["repetition"].iloc[0])
        last = int(rows["attempt"].max())
        judged = judge(rows[rows["attempt"] == last].to_dict("records"), last)
        if judged is not None:
            found[arm, repetition] = judged
    bad = {key for key, each in found.items() if each.disturbed}
    measured = set(zip(run.iterations["arm"], run.iterations["repetition"], strict=True))
    void = tuple(
        arm
        for arm in run.arm_names
        if all((arm, repetition) in bad for name, repetition in measured if name == arm)
    )
    # What jobs do alone is looked at by its best iterations, so all of these stay.
    out = {key for key in bad if key[0] not in (*void, ALONE)}
    if not out:
        return Quiet(run, found, void)
    tables: dict[str, Any] = {
        name: _without(getattr(run, name), out) for name in TABLES if name != "disturbance"
    }
    return Quiet(dataclasses.replace(run, **tables), found, void)


def _without(table: pd.DataFrame, keys: set[Key]) -> pd.DataFrame:
    kept = [key not in keys for key in zip(table["arm"], table["repetition"], strict=True)]
    return table[pd.Series(kept, index=table.index, dtype=bool)]
