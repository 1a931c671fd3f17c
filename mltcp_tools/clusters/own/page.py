# SPDX-License-Identifier: BSD-2-Clause
"""The findings about an own cluster, as text and as one page of HTML."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from mltcp_tools.base.pages import templates
from mltcp_tools.base.units import counted
from mltcp_tools.clusters.own.ask import Answer, Findings
from mltcp_tools.clusters.own.conflicts import Conflict
from mltcp_tools.clusters.own.replay import Compared, Trust, trust
from mltcp_tools.clusters.rules import UNTOLD
from mltcp_tools.clusters.text import long, share, table
from mltcp_tools.clusters.time_shifts import FITS
from mltcp_tools.clusters.workload import Workload

_TEMPLATES = templates("mltcp_tools.clusters")
_CALENDAR_S = 1e8
"""Larger times are seconds since 1970."""
_LATE = 0.1
"""A job that waits for a larger share of the log's time isn't beside those beside which it ran."""


def trust_rows(found: Sequence[Trust]) -> list[list[str]]:
    """A head and a row per model."""
    rows = [["model", "jobs held out", "predicted / observed", "80 % of them"]]
    for each in found:
        spread = f"{each.low:.2f} to {each.high:.2f}"
        rows.append([each.model, str(each.jobs), f"{each.median:.3f}", spread])
    return rows


_ASSUMED = {
    "topology": "Nothing says which switches there are (--network): one switch is assumed.",
    "uplink": "Nothing says how fast uplinks are (--uplink): as fast as all servers below is"
    " assumed.",
    "queue": "Nothing says what a port's queue holds (--queue): 1 MB is assumed.",
    "iteration": "Nothing says how long an iteration is (iterations in the log): 1 s is assumed."
    " The bytes sent are measured; all traffic of a server counts as its job's.",
}


def unsaid(workload: Workload) -> list[str]:
    """Sentences on what nobody said of the cluster and its models."""
    return [_ASSUMED[each] for each in workload.assumed]


def unexplained(compared: Sequence[Compared]) -> list[str]:
    """Sentences on what no prediction was made of, or held against anything."""
    said = []
    guessed = sum(each.job.guessed for each in compared)
    if guessed:
        said.append(
            f"Of {counted(guessed, 'job')} the log doesn't say how many iterations they had; their"
            " durations say nothing of this model."
        )
    span_s = max((each.job.arrival_s + each.observed_s for each in compared), default=0.0)
    late = sum(each.waited_s > _LATE * span_s for each in compared)
    if late:
        said.append(
            f"{counted(late, 'job')} waited in the replay until GPUs were free that they had in"
            " truth: the log has more of them in use at a time than the cluster, or jobs before"
            " them are predicted to take too long."
        )
    if not any(each.held_out for each in compared):
        said.append(
            "No job is left to hold a prediction against: nothing says how far to trust what"
            " follows. Iterations in the log would."
        )
    return said


def render_trust(found: Sequence[Trust], sentences: Sequence[str]) -> str:
    """As text."""
    lines = "".join(f"{sentence}\n" for sentence in sentences)
    return (table(trust_rows(found)) if found else "") + lines


def answer_rows(answers: Sequence[Answer]) -> list[list[str]]:
    """A head and a row per question."""
    rows = [["question", "change", "GPU hours saved (95 % CI)", "answer"]]
    for each in answers:
        saved = "" if each.saved is None else share(each.saved, each.half)
        rows.append([each.question, each.change, saved, each.verdict])
    return rows


def render_answers(answers: Sequence[Answer]) -> str:
    """As text."""
    return table(answer_rows(answers))


def conflict_rows(found: Sequence[Conflict]) -> list[list[str]]:
    """A head and a row per conflict."""
    head = ["link", "when (the log's time)", "jobs", "GPU hours lost", "other servers"]
    rows = [[*head, "time shift", "MLTCP, by packets"]]
    for each in found:
        jobs, lost = ", ".join(each.jobs), f"{each.hours:,.2f}"
        rows.append([each.link, _when(each), jobs, lost, *each.remedies])
    # Without iterations, only placement is tried.
    return rows if any(each.mltcp is not None for each in found) else [row[:5] for row in rows]


def _when(found: Conflict) -> str:
    """The first and the last minute of a conflict; hours where the log counts from 0."""
    if found.from_s < _CALENDAR_S:
        return f"{long(found.from_s)} to {long(found.until_s)}"
    first, last = (datetime.fromtimestamp(at, UTC) for at in (found.from_s, found.until_s))
    same_day = first.date() == last.date()
    return f"{first:%Y-%m-%d %H:%M} to {last:{'%H:%M' if same_day else '%Y-%m-%d %H:%M'}}"


def conflict_sentence(found: Sequence[Conflict], gpu_hours: float) -> str:
    """A summary of the table of conflicts."""
    if not found:
        return "No jobs slow each other on a link."
    lost = sum(each.hours for each in found)
    placed = sum(bool(each.places) for each in found)
    worst = "worst conflict" if len(found) == 1 else f"{len(found)} worst conflicts"
    share = "less than 0.01%" if lost < 1e-4 * gpu_hours else f"{lost / gpu_hours:.2%}"
    said = (
        f"The {worst} lost {lost:,.2f} GPU hours, {share} of all. Free servers would have avoided"
        f" {placed}"
    )
    if found[0].mltcp is None:
        return f"{said}. Time shifts and MLTCP aren't tried, as the log has no iterations."
    shifted = sum(each.remedies[1].startswith("by") for each in found)
    unfit = sum(each.score is None or each.score < FITS for each in found)
    saved = sum(each.remedies[2].startswith("saves") for each in found)
    cost = sum(each.remedies[2].startswith("costs") for each in found)
    return (
        f"{said}, time shifts {shifted}; no shift helps in {unfit}. MLTCP shortens iterations in"
        f" {saved} and lengthens them in {cost}."
    )


def render_conflicts(found: Sequence[Conflict], gpu_hours: float) -> str:
    """As text."""
    rows = table(conflict_rows(found)) if found else ""
    return rows + conflict_sentence(found, gpu_hours)


def page(data: str, version: str, found: Findings) -> str:
    """One file that needs nothing else."""
    gpu_hours = found.facts.gpu_hours
    values: dict[str, Any] = {
        "data": data,
        "version": version,
        "inputs": found.inputs,
        "facts": found.facts.sentences(),
        "trust": trust_rows(trust(found.compared)) if trust(found.compared) else [],
        "answers": answer_rows(found.answers),
        "told": [each.told for each in found.answers],
        "sentences": found.notes,
        "rules": f"{UNTOLD:.0%}",
        "conflicts": conflict_rows(found.conflicts) if found.conflicts else [],
        "conflict_sentence": conflict_sentence(found.conflicts, gpu_hours),
    }
    return _TEMPLATES.get_template("ask.html.j2").render(values)
