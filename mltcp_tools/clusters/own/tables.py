# SPDX-License-Identifier: BSD-2-Clause
"""Jobs from tables: what sacct prints, with or without --json, and CSVs.

sacct: the columns that SACCT lists, separated by `|`; with -n, in that order. CSV: a header with
name, submitted, start, end, gpus, and where known nodes (as Slurm writes lists of hosts, or
separated by `;` or blanks), model, and iterations or iteration, the seconds of one; separated by
`,`, or `;` or tabs as some spreadsheets write it.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from mltcp_tools.base.errors import UsageError
from mltcp_tools.base.units import counted
from mltcp_tools.clusters.own.entries import Clock, LeftOutError, LoggedJob, Reader, Row, equally
from mltcp_tools.clusters.own.slurm import hosts

_COLUMNS = ("JobID", "JobName", "Submit", "Start", "End", "State", "AllocTRES", "NodeList")
SACCT = f"TZ=UTC sacct -aPXD -o {','.join(_COLUMNS)},Suspended"
"""The command that lists all that is read; -D: earlier runs of requeued jobs, too."""
_CSV = ("name", "submitted", "start", "end", "gpus")
_GPU = re.compile(r"(?:^|,)gres/gpu(:[^=,]+)?=([^,]*)")
_SLICE = re.compile(r"(?:^|[^0-9a-z])([1-7])g\.[0-9]+gb")
"""A part of a GPU (MIG), in the name of its type: how many of its seven slices."""
UNCOUNTED = "without gres/gpu in AllocTRES"
_AGAIN = {"requeued", "requeue_hold", "node_fail", "preempted", "special_exit"}
"""States of jobs that start again."""
_UNLISTED = (
    "lost a node, was preempted or was queued again, and no job is listed twice: list earlier runs,"
    f" too, as `{SACCT}` does."
)
_UNENDED = {"pending", "configuring", "running", "suspended", "completing"}
"""States of jobs that haven't ended, whatever their end."""


def share_of(name: str) -> float:
    """The part of a GPU that one of this type is: 1, or the slices of a MIG part."""
    match = _SLICE.search(name)
    return int(match[1]) / 7 if match else 1.0


def table(text: str, file: str) -> Iterator[Reader]:
    """Readers of a table's rows."""
    first = next((line for line in text.splitlines() if line.strip()), None)
    if first is None:
        raise UsageError(f"{file} is empty; it needs a scheduler's log, or a CSV.")
    separator = max(",", ";", "\t", "|", key=first.count)
    slurm = separator == "|" or first.lstrip().lower().startswith("jobid")
    if slurm and "|" not in first:
        raise UsageError(f"{file}:1: its fields must be separated by |; use `sacct -P`.")
    # sacct puts nothing in quotes, and names of jobs may have them.
    options: dict[str, Any] = {"quoting": csv.QUOTE_NONE} if slurm else {"strict": True}
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, **options)
    needed = _COLUMNS if slurm else _CSV
    names: list[str] = []
    if slurm and re.match(r"\s*[0-9]", first):
        names = [*_COLUMNS, "suspended"][: first.count("|") + 1]
        if not len(_COLUMNS) <= first.count("|") + 1 <= len(_COLUMNS) + 1:
            raise UsageError(f"{file}:1: has other columns, and no header; list them by `{SACCT}`.")
    clock, seen = Clock(), set[tuple[str, str]]()
    try:
        for fields in reader:
            place = f"{file}:{reader.line_num}"
            if not any(field.strip() for field in fields):
                continue
            if not names:
                lower = {name.lower(): name for name in needed}
                names = [lower.get(each.strip().lower(), each.strip().lower()) for each in fields]
                _require_columns(place, names, needed)
            elif slurm:
                # The name of a job may have the separator, too.
                at, more = names.index("JobName"), max(0, len(fields) - len(names))
                fields[at : at + more + 1] = ["|".join(fields[at : at + more + 1])]
                if "." not in fields[names.index("JobID")]:  # else it is a step of a job
                    row = Row(place, dict(zip(names, fields, strict=False)), clock)
                    yield partial(sacct, row, seen)
            else:
                yield partial(_plain, place, names, fields, clock)
    except csv.Error as error:
        raise UsageError(f"{file}:{reader.line_num}: {error}; is a quote open before it?") from None


def _require_columns(place: str, names: Sequence[str], needed: Sequence[str]) -> None:
    if missing := [name for name in needed if name not in names]:
        raise UsageError(
            f"{place}: there is no column {', '.join(missing)}; there must be {', '.join(needed)}."
        )
    if twice := [name for name in needed if names.count(name) > 1]:
        raise UsageError(f"{place}: there are two columns {twice[0]}; keep one.")


def sacct(row: Row, seen: set[tuple[str, str]]) -> LoggedJob:
    """A job of Slurm. seen: jobs so far, and their starts; a requeued one has another start."""
    state = row.text("State").split()[0].lower()
    listed = dict(_GPU.findall(row.fields.get("AllocTRES") or ""))
    for count in listed.values():
        if not re.fullmatch("[0-9]{1,9}", count):
            raise row.error("AllocTRES", f"{count!r} is no number of GPUs")
    # Slurm may list all GPUs, those of each type, or both.
    total = int(listed.pop("", 0))
    gpus = sum(int(count) * share_of(name) for name, count in listed.items())
    gpus += max(0, total - sum(map(int, listed.values())))
    if state in _UNENDED or not (row.known("Start") and row.known("End")):
        raise LeftOutError(state)
    if not gpus:
        raise LeftOutError(UNCOUNTED)
    times = row.times("Submit", "Start", "End")
    key = row.text("JobID"), row.text("Start")
    if key in seen:
        raise LeftOutError("listed twice")
    seen.add(key)
    job = row.job("JobName", times, gpus, _placement(row, "NodeList", gpus))
    job = replace(job, id=key[0], lacks=_UNLISTED * (state in _AGAIN), idle_s=_suspended_s(row))
    if job.took_s <= 0:
        raise LeftOutError("that was suspended all the time")
    return job


def _suspended_s(row: Row) -> float:
    """Seconds for which the job was suspended, from [DAYS-]HOURS:MINUTES:SECONDS or seconds."""
    text = row.known("suspended") or "0"
    if not re.fullmatch(r"([0-9]+-)?[0-9]+(:[0-9]+){0,2}(\.[0-9]*)?", text):
        raise row.error("Suspended", f"{text!r} is no time like 01:30:00")
    days, _, clock = text.rpartition("-")
    parts = reversed(clock.partition(".")[0].split(":"))
    return 86_400.0 * int(days or 0) + sum(float(each) * 60.0**n for n, each in enumerate(parts))


def _plain(place: str, names: Sequence[str], fields: Sequence[str], clock: Clock) -> LoggedJob:
    """A job of a CSV."""
    if len(fields) > len(names):
        raise UsageError(
            f"{place}: has {len(fields)} fields, and the header has {len(names)}; put a name that"
            " has a separator in quotes."
        )
    row = Row(place, dict(zip(names, fields, strict=False)), clock)
    text = row.known("gpus")
    part = re.fullmatch(r"[0-9]*\.0*[1-9][0-9]*", text)
    gpus = float(text) if part else row.count("gpus") if text else 0
    times = row.times("submitted", "start", "end")
    job = row.job("name", times, gpus, _placement(row, "nodes", gpus))
    iterations = None
    if row.known("iterations"):
        iterations = row.count("iterations", 1)
    elif text := row.known("iteration"):
        if not re.fullmatch(r"[0-9.]+(e-?[0-9]+)?", text) or not float(text) > 0:
            raise row.error("iteration", f"must be seconds, more than 0, not {text!r}")
        iterations = max(1, round(job.took_s / float(text)))
    return replace(job, iterations=iterations, model=row.known("model"))


def _placement(row: Row, name: str, gpus: float) -> Mapping[str, int]:
    """GPUs on each node; none where the nodes aren't known, or parts of a GPU are."""
    try:
        found = list(dict.fromkeys(hosts(re.sub(r"[;,\s]+", ",", row.known(name)))))
    except UsageError as error:
        raise row.error(name, str(error).rstrip(".")) from None
    if len(found) > math.ceil(gpus) > 0:
        raise row.error("nodes", f"{len(found)} of them, and {counted(math.ceil(gpus), 'GPU')}")
    return equally(int(gpus), found) if gpus == int(gpus) else {}
