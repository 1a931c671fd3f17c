"""Jobs from a scheduler's log: Slurm's sacct, Kueue's and Volcano's lists, a plain CSV.

sacct: `sacct -aPX -o JobID,JobName,Submit,Start,End,State,AllocTRES,NodeList`, separated by `|`.
Kueue: `kubectl get workloads -A -o json`. Volcano: `kubectl get jobs.batch.volcano.sh -A -o json`.
CSV: a header with name, submitted, start, end, gpus, and where known nodes (as Slurm writes lists
of hosts, or separated by `;`), model, and iterations or iteration, the seconds of one; separated by
`,` or, as some spreadsheets write it, `;`. Times are ISO 8601 or seconds. A time without a zone is
taken as one of UTC, which is as good as any as long as no other has one.

A log that isn't what it should be gives a UsageError with its line or entry and field. Jobs that
didn't run to their end, or had no GPU, are left out and counted. Jobs of one name are told apart by
numbers.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mltcp_tools.clusters.own.slurm import hosts
from mltcp_tools.errors import UsageError

_GPU = re.compile(r"(?:^|,)gres/gpu(:[^=,]+)?=([0-9]+)")
_ZONE = re.compile(r"[T ][0-9:.]+ ?(Z|[+-][0-9:]+)$")
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
    text = _text(path)
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
    return Log(tuple(_told_apart(jobs)), dict(left_out))


def _text(path: Path) -> str:
    """Text of a file in UTF-8 or UTF-16, as spreadsheets and PowerShell write it."""
    try:
        read = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}.") from None
    wide = read.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        return read.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = read[: error.start].count(b"\n") + 1
        raise UsageError(
            f"{path}:{line}: is no text in UTF-8; write it anew, say with `iconv -f latin1 -t"
            " utf-8`."
        ) from None


def _told_apart(jobs: Sequence[LoggedJob]) -> Iterator[LoggedJob]:
    """The jobs; of those that have one name all but the first get a number behind it."""
    taken = {job.name for job in jobs}
    seen: set[str] = set()
    for job in jobs:
        name, number = job.name, 1
        while name in seen or (number > 1 and name in taken):
            number += 1
            name = f"{job.name}.{number}"
        seen.add(name)
        yield replace(job, name=name)


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
        # Where some are missing, tables of data frames have all as 8.0.
        if not re.fullmatch(r"[0-9]{1,9}(\.0*)?", text):
            raise self.error(name, f"must be a whole number, not {text!r}")
        return int(float(text))

    def times(self, names: Sequence[str]) -> tuple[float, float, float]:
        """Of when it was submitted, began and ended."""
        submitted_s, start_s, end_s = (self.time(name) for name in names)
        zoned = [name for name in names if _ZONE.search(self.text(name))]
        if zoned and len(zoned) < len(names):
            raise self.error(zoned[0], "has a time zone, and another time of the job has none")
        return submitted_s, start_s, end_s

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
    if not text.strip():
        raise UsageError(f"{file} is empty; it needs a scheduler's log, or a CSV.")
    header = text.splitlines()[0]
    slurm = "|" in header
    needed = (
        ("JobID", "JobName", "Submit", "Start", "End", "State", "AllocTRES", "NodeList")
        if slurm
        else ("name", "submitted", "start", "end", "gpus")
    )
    if slurm:
        # sacct puts nothing in quotes, and names of jobs may have them.
        reader = csv.reader(io.StringIO(text), delimiter="|", quoting=csv.QUOTE_NONE)
    else:
        separator = ";" if ";" in header and "," not in header else ","
        reader = csv.reader(io.StringIO(text), delimiter=separator)
    known = {name.lower(): name for name in needed}
    names = [known.get(name.strip().lower(), name.strip().lower()) for name in next(reader, [])]
    if missing := [name for name in needed if name not in names]:
        raise UsageError(
            f"{file}:1: there is no column {', '.join(missing)}; there must be {', '.join(needed)}."
        )
    for fields in reader:
        if fields:
            if slurm and len(fields) > len(names):
                # Names of jobs may have the separator, too.
                first, more = names.index("JobName"), len(fields) - len(names)
                fields[first : first + more + 1] = ["|".join(fields[first : first + more + 1])]
            row = _Row(f"{file}:{reader.line_num}", dict(zip(names, fields, strict=False)))
            if not (slurm and "." in row.text("JobID")):  # a step of a job
                yield lambda row=row: (_sacct if slurm else _plain)(row)  # type: ignore[misc]


def _sacct(row: _Row) -> LoggedJob:
    if row.text("State") != "COMPLETED":
        raise _LeftOutError(f"{row.text('State').split()[0].lower()}")
    # Slurm may list all GPUs, those of each type, or both.
    listed = dict(_GPU.findall(row.fields.get("AllocTRES") or ""))
    gpus = int(listed.pop("", 0)) or sum(map(int, listed.values()))
    if not gpus:
        raise _LeftOutError("without GPUs")
    times = row.times(("Submit", "Start", "End"))
    return _job(row, row.text("JobName"), times, gpus, _hosts(row, "NodeList"))


def _plain(row: _Row) -> LoggedJob:
    nodes = _hosts(row, "nodes") if (row.fields.get("nodes") or "").strip() else ()
    gpus = row.count("gpus")
    if not gpus:
        raise _LeftOutError("without GPUs")
    job = _job(row, row.text("name"), row.times(("submitted", "start", "end")), gpus, nodes)
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


def _hosts(row: _Row, name: str) -> tuple[str, ...]:
    try:
        found = hosts(row.text(name).replace(";", ","))
    except UsageError as error:
        raise row.error(name, str(error).rstrip(".")) from None
    return tuple(dict.fromkeys(found))


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
            true = {c["type"]: c for c in conditions if c["status"] == "True"}
            at = {name: c["lastTransitionTime"] for name, c in true.items()}
            failed = true.get("Finished", {}).get("reason") == "Failed"
            begun, ended, pods = at.get("Admitted"), at.get("Finished"), spec["podSets"]
            counts = [int(each.get("count", 1)) for each in pods]
        else:
            at, failed = {c["status"]: c["lastTransitionTime"] for c in conditions}, False
            begun, ended, pods = at.get("Running"), at.get("Completed"), spec["tasks"]
            counts = [int(each.get("replicas", 1)) for each in pods]
        gpus = sum(
            count * _gpus(each["template"]["spec"]["containers"])
            for count, each in zip(counts, pods, strict=True)
        )
        row = _Row(place, {"submitted": meta["creationTimestamp"], "name": meta["name"]})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"{place}: {error}: missing, or not what it should be.") from None
    if failed:
        raise _LeftOutError("failed")
    if not begun or not ended:
        raise _LeftOutError("without a start or an end")
    if not gpus:
        raise _LeftOutError("without GPUs")
    row.fields = {**row.fields, "start": str(begun), "end": str(ended)}
    return _job(row, row.text("name"), row.times(("submitted", "start", "end")), gpus, ())


def _gpus(containers: Sequence[Mapping[str, Any]]) -> int:
    """Return the GPUs that the containers of a pod ask for."""
    total = 0
    for container in containers:
        asked = container.get("resources", {})
        # A limit without a request is the request, too, as most GPUs are asked for.
        listed = (asked.get("limits") or {}) | (asked.get("requests") or {})
        total += sum(int(value) for name, value in listed.items() if _GPU_RESOURCE.fullmatch(name))
    return total
