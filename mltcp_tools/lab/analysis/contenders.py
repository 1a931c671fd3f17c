"""The arms of a matrix: their need of a network, and their gain once they have settled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mltcp_tools.lab.experiments.treatments import MARKS, NEEDS, SENDERS, TREATMENTS

Entry = Mapping[str, Any]


def needs_of(arm: Entry) -> str:
    """Return the need of an arm, given as in an experiment's document; one of NEEDS."""
    said = (arm.get("treatment") or {}).items()
    needed = [TREATMENTS[name].needs(settings or {}) for name, settings in said]
    own = MARKS if str(arm["cc"]).endswith("dctcp") else SENDERS
    return max((own, *needed), key=NEEDS.index)


def settled_gain(name: str, result: Entry) -> float | None:
    """An arm's captured gain of the settled iterations (`mltcp-result/1`); None where it has none
    of all iterations."""
    arms = result["arms"]
    if not arms[name]["captured_gain"]:
        return None
    compared = (arms[name], arms.get(result["baseline"]), result["schedules"].get("bound"))
    means = [each and each["settled_mean_s"] for each in compared]
    if not all(means):
        return None
    own, other, best = means
    return float((other - own) / (other - best)) if other > best else None
