# SPDX-License-Identifier: BSD-2-Clause
"""The verdict of a comparison of two runs, if there can be one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mltcp_tools.base.cells import interval
from mltcp_tools.lab.runs.run import Run
from mltcp_tools.live.observe.conditions import unlike


def changed_conditions(first: Run, second: Run) -> list[str]:
    """Return sentences on the conditions that differ between two recordings, as far as both tell;
    sentences.
    """
    told = [run.environment.get("conditions") for run in (first, second)]
    one, other = told
    if not (isinstance(one, Mapping) and isinstance(other, Mapping)):
        return []
    try:
        return unlike(one, other)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return [f"What is recorded of the conditions is damaged ({error!r})."]


def verdict(document: Mapping[str, Any]) -> list[str]:
    """Return the verdict of a comparison, a sentence for each variant: of all jobs together, and of
    each.
    """
    if document["conditions"]:
        return ["The conditions changed, so there is no verdict."]
    found = []
    for variant, entry in document["variants"].items():
        whole = (entry["speedup"] or {}).get("mean")
        if whole is None:
            continue
        each = [
            f"{job} {_changed(speedup)}"
            for job, values in entry["jobs"].items()
            if (speedup := (values["speedup"] or {}).get("mean"))
        ]
        listed = f" ({'; '.join(each)})" if len(each) > 1 else ""
        found.append(f"{variant}: the second run is {_changed(whole)}{listed}.")
    return found


def _changed(speedup: Mapping[str, float | None]) -> str:
    """A speed-up in words; none where its interval has 1 in it, or there is no interval."""
    low, high = speedup["low"], speedup["high"]
    told = f"x {interval(speedup, '.3f')}"
    if low is not None and low > 1:
        return f"faster, {told}"
    if high is not None and high < 1:
        return f"slower, {told}"
    return f"neither faster nor slower for sure, {told}"
