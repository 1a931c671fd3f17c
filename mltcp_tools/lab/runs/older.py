"""Names that experiments had when older runs were made, so that their folders stay readable."""

from __future__ import annotations

from typing import Any

_TREATMENTS = {"cassini": "turns", "feedback": "rates", "sincronia": "priorities"}
_TURNS = ("realign", "room")
_UNITS = {"bytes": "B", "compute": "s", "rate": "bit", "queue": "B", "delay": "s"}


def modern(document: dict[str, Any]) -> dict[str, Any]:
    """The experiment's document with the names that things have now."""
    arms, jobs, link = (document.get(key) for key in ("arms", "jobs", "link"))
    found = dict(document)
    if isinstance(arms, dict):
        found["arms"] = {name: _modern_arm(arm) for name, arm in arms.items()}
    if isinstance(jobs, list):
        found["jobs"] = [_with_units(job) for job in jobs]
    if isinstance(link, dict):
        found["link"] = _with_units(link)
    return found


def _with_units(entry: Any) -> Any:
    """A job or link whose quantities were bare numbers."""
    if not isinstance(entry, dict):
        return entry
    bare = {key for key in entry if key in _UNITS and type(entry[key]) in (int, float)}
    return entry | {key: f"{entry[key]}{_UNITS[key]}" for key in bare}


def _modern_arm(arm: Any) -> Any:
    if not isinstance(arm, dict):
        return arm
    treatment = arm.get("treatment")
    found = dict(treatment) if isinstance(treatment, dict) else {}
    found = {_TREATMENTS.get(name, name): settings for name, settings in found.items()}
    # `plan: true` with its settings beside it is from when there was no other treatment.
    if arm.get("plan") is True:
        found["turns"] = {key: arm[key] for key in _TURNS if key in arm}
    rest = {key: arm[key] for key in arm if key not in ("treatment", "plan", *_TURNS)}
    return rest | ({"treatment": found} if found else {})
