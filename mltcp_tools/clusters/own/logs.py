"""Jobs from a scheduler's log: Slurm's sacct, Kueue's and Volcano's lists, a plain CSV.

sacct: `sacct -aPX -o JobID,JobName,Submit,Start,End,State,AllocTRES,NodeList`, separated by `|`.
Kueue: `kubectl get workloads -A -o json`. Volcano: `kubectl get jobs.batch.volcano.sh -A -o json`.
CSV: a header with name, submitted, start, end, gpus, and where known nodes (as Slurm writes lists
of hosts, or separated by `;`), model, and iterations or iteration, the seconds of one. Times are
ISO 8601 or seconds.

A log that isn't what it should be gives a UsageError with its line or entry and field. Jobs that
didn't run to their end, or had no GPU, are left out and counted.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mltcp_tools.clusters.own.slurm import hosts
from mltcp_tools.errors import UsageError
from mltcp_tools.lab.planning.reading import read_text

_GPU = re.compile(r"(?:^|,)gres/gpu(?::[^=,]+)?=([0-9]+)")
_GPU_RESOURCE = re.compile(r"[a-z0-9.-]+/gpu(\.[a-z0-9-]+)?$")


@dataclass(frozen=True)
class LoggedJob:
    """A job that ran to its end; seconds since some instant. nodes: where, empty if unknown.
    iterations: None where the log doesn't say."""

    name: str
    submitted_s: float
    start_s: float
    end_s: float
    gpus: int
    nodes: tuple[str, ...] = ()
    model: str = ""
    iterations: int | None = None


@dataclass(frozen=True)
class Log:
    """jobs: by when they were submitted. left_out: reason -> how many jobs."""

    jobs: tuple[LoggedJob, ...]
    left_out: Mapping[str, int] = field(default_factory=dict)


class _LeftOutError(Exception):
    """A job that says nothing of how long jobs run; the reason."""


def read_log(path: Path) -> Log:
    """Jobs of a log, of whichever kind it is."""
    text = read_text(path)
    kind = _kubernetes if text.lstrip().startswith("{") else _table
    left_out: Counter[str] = Counter()
    jobs = []
    for read in kind(text, str(path)):
        try:
            jobs.append(read())
        except _LeftOutError as reason:
            left_out[str(reason)] += 1
    if not jobs:
        said = "; ".join(f"{count} {reason}" for reason, count in left_out.items())
        raise UsageError(
            f"{path} has no job that ran to its end on GPUs ({said or 'it is empty'})."
        )
    jobs.sort(key=lambda job: (job.submitted_s, job.start_s, job.name))
    return Log(tuple(jobs), dict(left_out))


def model_of(name: str) -> str:
    """Return the part of a name that jobs of one model share: all but numbers at the end."""
    return re.sub(r"([-_./ ]+[0-9]+)+$", "", name) or name


class _Row:
    """An entry's fields; errors name the place."""

    def __init__(self, place: str, fields: Mapping[str, str]) -> None:
        self.place, self.fields = place, fields

    def text(self, name: str) -> str:
        value = (self.fields.get(name) or "").strip()
        if not value:
            raise self.error(name, "missing")
        return value

    def time(self, name: str) -> float:
        text = self.text(name)
        if text in ("Unknown", "None"):
            raise _LeftOutError("without a start or an end")
        return _seconds(text, lambda what: self.error(name, what))

    def count(self, name: str) -> int:
        text = self.text(name)
        if not re.fullmatch(r"[0-9]{1,9}", text):
            raise self.error(name, f"must be a whole number, not {text!r}")
        return int(text)

    def error(self, name: str, what: str) -> UsageError:
        return UsageError(f"{self.place}: {name}: {what}.")


def _seconds(text: str, error: Callable[[str], UsageError]) -> float:
    try:
        value = float(text)
    except ValueError:
        try:
            at = datetime.fromisoformat(text.replace("Z", "+00:00"))
        except ValueError:
            raise error(f"{text!r} is neither a time nor seconds") from None
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    if not math.isfinite(value):
        raise error(f"{text!r} is no time")
    return value


def _table(text: str, file: str) -> Iterator[Callable[[], LoggedJob]]:
    lines = text.splitlines()
    header = lines[0] if lines else ""
    slurm = "|" in header
    needed = (
        ("JobID", "JobName", "Submit", "Start", "End", "State", "AllocTRES", "NodeList")
        if slurm
        else ("name", "submitted", "start", "end", "gpus")
    )
    reader = csv.reader(io.StringIO(text), delimiter="|" if slurm else ",")
    names = [name.strip() for name in next(reader, [])]
    if missing := [name for name in needed if name not in names]:
        raise UsageError(f"{file}:1: {', '.join(missing)}: no such column; there must be {needed}.")
    for fields in reader:
        if fields:
            row = _Row(f"{file}:{reader.line_num}", dict(zip(names, fields, strict=False)))
            if not (slurm and "." in row.text("JobID")):  # a step of a job
                yield lambda row=row: (_sacct if slurm else _plain)(row)  # type: ignore[misc]


def _sacct(row: _Row) -> LoggedJob:
    if row.text("State") != "COMPLETED":
        raise _LeftOutError(f"{row.text('State').split()[0].lower()}")
    found = _GPU.search(row.fields.get("AllocTRES") or "")
    if found is None or not int(found[1]):
        raise _LeftOutError("without GPUs")
    return _job(
        row,
        row.text("JobName"),
        (row.time("Submit"), row.time("Start"), row.time("End")),
        int(found[1]),
        tuple(hosts(row.text("NodeList"))),
    )


def _plain(row: _Row) -> LoggedJob:
    listed = (row.fields.get("nodes") or "").strip()
    nodes = tuple(host for part in listed.split(";") if part for host in hosts(part))
    gpus = row.count("gpus")
    if not gpus:
        raise _LeftOutError("without GPUs")
    times = row.time("submitted"), row.time("start"), row.time("end")
    job = _job(row, row.text("name"), times, gpus, nodes)
    iterations = None
    if (row.fields.get("iterations") or "").strip():
        iterations = row.count("iterations")
    elif (row.fields.get("iteration") or "").strip():
        each_s = row.time("iteration")
        if each_s <= 0:
            raise row.error("iteration", "must be more than 0 s")
        iterations = max(1, round((job.end_s - job.start_s) / each_s))
    if iterations == 0:
        raise row.error("iterations", "must be 1 or more")
    model = (row.fields.get("model") or "").strip() or job.model
    return LoggedJob(**vars(job) | {"iterations": iterations, "model": model})


def _job(
    row: _Row,
    name: str,
    times: tuple[float, float, float],
    gpus: int,
    nodes: Sequence[str],
) -> LoggedJob:
    submitted_s, start_s, end_s = times
    if not submitted_s <= start_s:
        raise row.error("start", "is before it was submitted")
    if end_s <= start_s:
        raise _LeftOutError("that took no time")
    if len(nodes) > gpus:
        raise row.error("nodes", f"{len(nodes)} of them, and {gpus} GPUs")
    return LoggedJob(name, submitted_s, start_s, end_s, gpus, tuple(nodes), model_of(name))


def _kubernetes(text: str, file: str) -> Iterator[Callable[[], LoggedJob]]:
    try:
        items = json.loads(text)["items"]
        kinds = [str(item["kind"]) for item in items]
    except (ValueError, KeyError, TypeError):
        raise UsageError(f"{file} is not a list of Kubernetes objects in JSON.") from None
    for number, (kind, item) in enumerate(zip(kinds, items, strict=True)):
        if kind not in ("Workload", "Job"):
            raise UsageError(f"{file}: items[{number}]: kind {kind} is no Workload and no Job.")
        yield lambda n=number, k=kind, i=item: _object(f"{file}: items[{n}]", k, i)  # type: ignore[misc]


def _object(place: str, kind: str, item: Mapping[str, Any]) -> LoggedJob:
    """A Workload of Kueue or a Job of Volcano."""
    try:
        meta, spec = item["metadata"], item["spec"]
        conditions = item.get("status", {}).get("conditions", [])
        if kind == "Workload":
            at = {c["type"]: c["lastTransitionTime"] for c in conditions if c["status"] == "True"}
            begun, ended, pods = at.get("Admitted"), at.get("Finished"), spec["podSets"]
            counts = [int(each.get("count", 1)) for each in pods]
        else:
            at = {c["status"]: c["lastTransitionTime"] for c in conditions}
            begun, ended, pods = at.get("Running"), at.get("Completed"), spec["tasks"]
            counts = [int(each.get("replicas", 1)) for each in pods]
        gpus = sum(
            count * _gpus(each["template"]["spec"]["containers"])
            for count, each in zip(counts, pods, strict=True)
        )
        row = _Row(place, {"submitted": meta["creationTimestamp"], "name": meta["name"]})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"{place}: {error}: missing, or not what it should be.") from None
    if not begun or not ended:
        raise _LeftOutError("without a start or an end")
    if not gpus:
        raise _LeftOutError("without GPUs")
    row.fields = {**row.fields, "start": str(begun), "end": str(ended)}
    times = row.time("submitted"), row.time("start"), row.time("end")
    return _job(row, row.text("name"), times, gpus, ())


def _gpus(containers: Sequence[Mapping[str, Any]]) -> int:
    """Return the GPUs that the containers of a pod ask for."""
    total = 0
    for container in containers:
        asked = container.get("resources", {})
        listed = asked.get("requests") or asked.get("limits") or {}
        total += sum(int(value) for name, value in listed.items() if _GPU_RESOURCE.fullmatch(name))
    return total
