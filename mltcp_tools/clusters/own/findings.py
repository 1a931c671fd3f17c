# SPDX-License-Identifier: BSD-2-Clause
"""All that is found out about one's own cluster: sections of text, of a page and of a document."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from mltcp_tools.base.errors import UsageError
from mltcp_tools.base.pages import templates
from mltcp_tools.base.units import counted
from mltcp_tools.clusters.own.ask import Answer, ask
from mltcp_tools.clusters.own.conflicts import Conflict, conflicts
from mltcp_tools.clusters.own.facts import facts, sentences
from mltcp_tools.clusters.own.replay import OVERRUN, calibrated, compare, error, overrun, trust
from mltcp_tools.clusters.reading import parse_workload
from mltcp_tools.clusters.rules import UNTOLD
from mltcp_tools.clusters.text import long, share, table, two_digits
from mltcp_tools.clusters.time_shifts import FITS
from mltcp_tools.clusters.workload import Workload
from mltcp_tools.lab.planning.reading import read_text

_CALENDAR_S = 1e8
"""Larger times are seconds since 1970."""
_ASSUMED = {
    "topology": "Nothing says which switches there are (--network): one switch is assumed.",
    "uplink": "Nothing says how fast uplinks are (--uplink): as fast as all servers below is"
    " assumed.",
    "queue": "Nothing says what a port's queue holds (--queue): 1 MB is assumed.",
    "iteration": "Nothing says how long an iteration is (iterations in the log): 1 s is assumed."
    " The bytes sent are measured; all traffic of a server counts as its job's.",
}


@dataclass(frozen=True)
class Section:
    """A part of the findings. rows: of its table, the first is the head. note: how to read it."""

    title: str
    rows: Sequence[Sequence[str]]
    sentences: Sequence[str]
    note: str = ""

    def text(self) -> str:
        """As text."""
        return (table(self.rows) if self.rows else "") + "".join(f"{s}\n" for s in self.sentences)


def findings(
    data: Path, draws: int, said: Callable[[str], None] = lambda what: None
) -> tuple[list[Section], dict[str, Any]]:
    """All about the workload in a file, as sections and as a document. said: hears what is worked
    out."""
    workload, held_out = calibrated(_read(data))
    found = facts(workload)
    # Where an iteration is what a second of the job's time holds, its duration predicts itself.
    compared = compare(workload, held_out)
    times = overrun(compared)
    compared = compared[:0] if "iteration" in workload.assumed else compared
    notes, models = [*unsaid(workload), *_unexplained(compared)], trust(compared)
    known = times <= OVERRUN
    answers = ask(workload, error(compared), draws, said) if known else []
    said("Conflicts")
    worst = conflicts(workload) if known else []
    wrong = (
        f"Simulated, these jobs hold {times:.1f} times the GPU hours that they held: a link is"
        " faster than this file says (--rate, --uplink), or a model smaller or faster. Nothing is"
        " answered by such a simulation."
    )
    sentence = conflict_sentence(worst, found["gpu_hours"]) if known else "Not known; see above."
    sections = [
        Section("Inputs", [], workload.inputs),
        Section("By arithmetic", [], sentences(found)),
        Section(
            *("How far to trust the rest", _trust_rows(models), notes),
            "Predicted / observed: how long jobs ran, for jobs that nothing was fitted to.",
        ),
        Section(
            *("Two questions", _answer_rows(answers), [] if known else [wrong]),
            "Savings are a share of the GPU hours that jobs hold. ± is the largest of the 95 %"
            " interval over draws, the model's error (of its rules against packets,"
            f" {UNTOLD:.0%}), and the error of the predictions above; an effect within it is not"
            " significant. Not simulated are single packets, the network inside a server, and"
            " storage.",
        ),
        Section(
            *("The worst conflicts", conflict_rows(worst), [sentence]),
            "GPU hours lost: for how much longer than alone the jobs sent because these links were"
            " full, times their GPUs; in %, how much longer each job ran. Of small conflicts, only"
            " the order of magnitude is known. Other servers: those that were free, by the log, as"
            " long as the last job ran, and share no link with the others. Time shift: of the"
            " other jobs' bursts behind the first one's; a score (Cassini) below"
            f" {FITS} means that no shift fits, no common period that their iterations don't"
            " repeat together. MLTCP: change of the jobs' iteration time, simulated packet by"
            " packet on the first of the links alone, with 95 % intervals.",
        ),
    ]
    return sections, {
        "schema": "mltcp-cluster-ask/7",
        "inputs": workload.inputs,
        "facts": found | {"sentences": sentences(found)},
        "notes": notes if known else [*notes, wrong],
        "error": error(compared),
        "trust": models,
        "answers": [each.to_json() for each in answers],
        "conflicts": [each.to_json() for each in worst],
    }


def _read(data: Path) -> Workload:
    """The workload; a UsageError where it has no observed job."""
    try:
        workload = parse_workload(read_text(data), str(data))
    except UsageError as error:
        raise UsageError(f"{error} Logs are converted by `mltcp cluster import` first.") from None
    if not workload.observed:
        raise UsageError(
            f"{data} has no job that was observed; make it with `mltcp cluster import`."
        )
    return workload


def page(data: str, version: str, sections: Sequence[Section]) -> str:
    """One file of HTML that needs nothing else."""
    template = templates("mltcp_tools.clusters").get_template("ask.html.j2")
    return template.render(data=data, version=version, sections=sections)


def unsaid(workload: Workload) -> list[str]:
    """Sentences on what nobody said of the cluster and its models."""
    return [said for each, said in _ASSUMED.items() if each in workload.assumed]


def _unexplained(compared: pd.DataFrame) -> list[str]:
    """Sentences on what no prediction was made of, or held against anything."""
    said = []
    if guessed := int(compared.guessed.sum()):
        said.append(
            f"Of {counted(guessed, 'job')} the log doesn't say how many iterations they had; their"
            " durations say nothing of this model."
        )
    if not compared.held_out.any():
        said.append(
            "No job is left to hold a prediction against: nothing says how far to trust what"
            " follows. Iterations in the log would."
        )
    return said


def _trust_rows(models: Sequence[dict[str, Any]]) -> list[list[str]]:
    """A head and a row per model; none without models."""
    head = ["model", "jobs held out", "predicted / observed", "80 % of them"]
    rows = [
        [m["model"], str(m["jobs"]), f"{m['median']:.3f}", f"{m['low']:.2f} to {m['high']:.2f}"]
        for m in models
    ]
    return [head, *rows] if rows else []


def _answer_rows(answers: Sequence[Answer]) -> list[list[str]]:
    """A head and a row per question; none without answers."""
    rows = [["question", "change", "GPU hours saved", "answer"]] if answers else []
    for each in answers:
        saved = (
            "" if each.saved is None else share(each.saved, each.error if not each.reason else 0.0)
        )
        rows.append([each.question, each.change, saved, each.verdict])
    return rows


def conflict_rows(found: Sequence[Conflict]) -> list[list[str]]:
    """A head and a row per conflict; none without conflicts."""
    head = ["links", "when (the log's time)", "jobs (GPU hours lost)", "all", "other servers"]
    rows = [[*head, "time shift", "MLTCP, by packets"]] if found else []
    for each in found:
        each_lost = zip(each.jobs, each.lost, each.slower, strict=True)
        jobs = ", ".join(f"{job} {two_digits(h)} (+{slower:.0%})" for job, h, slower in each_lost)
        links = ", ".join(each.links)
        rows.append([links, _when(each), jobs, two_digits(each.hours), *each.remedies])
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
    placed = sum(each.moved for each in found if each.places)
    worst = "worst conflict" if len(found) == 1 else f"{len(found)} worst conflicts"
    share = "less than 0.1%" if lost < 1e-3 * gpu_hours else f"{lost / gpu_hours:.1%}"
    said = (
        f"The {worst} lost {two_digits(lost)} GPU hours, {share} of all; free servers would have"
        f" saved {two_digits(placed)} of them"
    )
    if found[0].mltcp is None:
        return f"{said}. Time shifts and MLTCP aren't tried, as the log has no iterations."
    shifted = sum(each.remedies[1].startswith("by") for each in found)
    unfit = sum(each.score is None or each.score < FITS for each in found)
    saved, cost = (
        sum(each.remedies[2].startswith(word) for each in found) for word in ("saves", "costs")
    )
    return (
        f"{said}. Time shifts separate the jobs of {shifted}; no shift helps in {unfit}. MLTCP"
        f" shortens iterations in {saved} and lengthens them in {cost}."
    )
