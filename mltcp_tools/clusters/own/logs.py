# SPDX-License-Identifier: BSD-2-Clause
"""Jobs from a scheduler's log: Slurm's sacct, Kueue's and Volcano's lists, a plain CSV.

sacct: `TZ=UTC sacct -aPXD -o JobID,JobName,Submit,Start,End,State,AllocTRES,NodeList`, separated by
`|`, or `sacct -aXD --json`. Kueue: `kubectl get workloads -A -o json`. Volcano: `kubectl get
jobs.batch.volcano.sh -A -o json`. CSV: a header with name, submitted, start, end, gpus, and where
known nodes (as Slurm writes lists of hosts, or separated by `;`), model, and iterations or
iteration, the seconds of one; separated by `,`, or `;` or tabs as some spreadsheets write it. Times
are ISO 8601 or seconds since 1970, all of a log alike. Without a zone they are taken as UTC, which
is as good as any but for days on which clocks change.

A log that isn't what it should be gives a UsageError with its line or entry and field. Entries that
can't be read are left out and counted, as long as they are fewer than half. So are jobs that
haven't begun or ended, or had no whole GPU; those that failed or were cancelled had their GPUs and
links as others do. Jobs of one name are told apart by numbers.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from mltcp_tools.base.errors import UsageError
from mltcp_tools.base.units import counted
from mltcp_tools.clusters.own.slurm import hosts

T = TypeVar("T", dict[str, Any], list[Any], str)

_GPU = re.compile(r"(?:^|,)gres/gpu(:[^=,]+)?=([^,]*)")
_GPU_RESOURCE = re.compile(r"[a-z0-9.-]+/gpu(\.[a-z0-9-]+)?$")
_NONE = {"", "-", "n/a", "nan", "nat", "none", "none assigned", "null", "unknown"}
"""Slurm's, Python's and spreadsheets' words for what isn't known."""
_WORDS = {dict: "a mapping", list: "a list", str: "text"}
_MOST_GPUS = 1_000_000
_AGAIN = {"requeued", "requeue_hold", "node_fail", "preempted", "special_exit"}
"""States of Slurm of jobs that start again."""
_LAST_S = 1e11
"""Seconds since 1970 that are no time, but milliseconds."""
_LONGEST_S = 20 * 365 * 86_400
"""Of a log."""


@dataclass(frozen=True)
class LoggedJob:
    """A job that ran to its end; seconds since some instant. nodes: where, empty if unknown.
    iterations: None where the log doesn't say. id: Slurm's, "" for others; again: its state says
    that it has to start again."""

    name: str
    submitted_s: float
    start_s: float
    end_s: float
    gpus: int
    nodes: tuple[str, ...] = ()
    model: str = ""
    iterations: int | None = None
    id: str = ""
    again: bool = False


@dataclass(frozen=True)
class Log:
    """jobs: by when they were submitted. left_out: reason -> how many jobs. notes: sentences on
    what the log may lack."""

    jobs: tuple[LoggedJob, ...]
    left_out: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class _LeftOutError(Exception):
    """A job that didn't run on GPUs from a start to an end; the reason."""


def read_log(path: Path) -> Log:
    """Jobs of a log, of whichever kind it is."""
    text = _text(path)
    kind = _json if text.lstrip().startswith(("{", "[")) else _table
    left_out: Counter[str] = Counter()
    wrong: list[UsageError] = []
    jobs = []
    for read in kind(text, str(path)):
        try:
            jobs.append(read())
        except _LeftOutError as reason:
            left_out[str(reason)] += 1
        except UsageError as error:
            wrong.append(error)
    if wrong:
        if len(wrong) >= len(jobs):
            raise wrong[0]
        left_out[f"that can't be read (first {str(wrong[0]).rstrip('.')})"] = len(wrong)
    if not jobs:
        said = "; ".join(f"{count} {reason}" for reason, count in left_out.items())
        raise UsageError(f"{path} has no job that ran on GPUs and ended ({said or 'it is empty'}).")
    first_s, last_s = min(job.submitted_s for job in jobs), max(job.end_s for job in jobs)
    if last_s - first_s > _LONGEST_S:
        raise UsageError(
            f"{path} has jobs that are {(last_s - first_s) / 86_400:.0f} days apart; leave times"
            " that aren't known empty."
        )
    jobs.sort(key=lambda job: (job.submitted_s, job.start_s, job.name))
    models = models_of(job.name for job in jobs)
    jobs = [replace(job, model=job.model or models[job.name]) for job in jobs]
    return Log(tuple(_told_apart(jobs)), dict(left_out), _unlisted(jobs))


def _unlisted(jobs: Sequence[LoggedJob]) -> tuple[str, ...]:
    """A sentence where jobs were queued again and earlier runs of none are there."""
    ids = [job.id for job in jobs if job.id]
    again = sum(job.again for job in jobs)
    if not again or len(set(ids)) < len(ids):
        return ()
    return (
        f"{counted(again, 'job')} lost a node, or had to make room or to start again, and no job is"
        " listed twice: list earlier runs, too, with `sacct -D`.",
    )


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


def models_of(names: Iterable[str]) -> dict[str, str]:
    """The model of each name: what is before a number that counts jobs, else the name itself.

    Numbers behind one beginning count jobs where they leave few out, of two or fewer from 0 or 1
    on; where they have zeros in front; or where they have five digits or more. So resnet-18 and
    resnet-50 are two.
    """
    found = {name: name for name in names}
    begun: dict[str, dict[str, int]] = defaultdict(dict)
    for name in found:
        if match := re.fullmatch(r"(.*[^-_./ ])[-_./ ]+([0-9]+)", name):
            begun[match[1]][name] = int(match[2])
            if len(match[2]) > 4 or (match[2][0] == "0" and len(match[2]) > 1):
                found[name] = match[1]
    for beginning, numbers in begun.items():
        values = set(numbers.values())
        dense = max(values) - min(values) < 2 * len(values)
        if dense and (min(values) <= 1 or len(values) > 3):
            found |= dict.fromkeys(numbers, beginning)
    return found


class _Clock:
    """Reads the times of one log, which are of one kind."""

    def __init__(self) -> None:
        self._kind = ""

    def seconds(self, text: str, error: Callable[[str], UsageError]) -> float:
        """Since 1970, or whatever instant the log's seconds are of."""
        try:
            value, kind = float(text), "in seconds"
            if not abs(value) < _LAST_S:
                raise error(f"{text!r} is no time in seconds; divide milliseconds by 1000")
        except ValueError:
            try:
                at = datetime.fromisoformat(text.replace("Z", "+00:00"))
            except ValueError:
                raise error(
                    f"{text!r} is no time; write it as 2026-03-01T10:00:00, or in seconds"
                ) from None
            kind = "with a zone" if at.tzinfo else "without a zone"
            value = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
        if kind != (self._kind or kind):
            raise error(f"is {kind}, and the log's first time {self._kind}; write all alike")
        self._kind = kind
        return value


class _Row:
    """An entry's fields; errors name the place."""

    def __init__(self, place: str, fields: Mapping[str, str], clock: _Clock) -> None:
        self.place, self.fields, self._clock = place, fields, clock

    def known(self, name: str) -> str:
        """Return the field; "" where it isn't known."""
        text = self._printable(name)
        return "" if text.lower() in _NONE else text

    def text(self, name: str) -> str:
        """Return a field that must be there, whatever word it is."""
        if not (text := self._printable(name)):
            raise self.error(name, "missing")
        return text

    def _printable(self, name: str) -> str:
        text = self.fields.get(name) or ""
        if not text.isprintable():
            text = "".join(each if each.isprintable() else " " for each in text)
        return text.strip()

    def count(self, name: str) -> int:
        text = self.text(name)
        # Where some are missing, tables of data frames have all as 8.0.
        if not re.fullmatch(r"[0-9]{1,9}(\.0*)?", text):
            raise self.error(name, f"must be a whole number, not {text!r}")
        return int(float(text))

    def times(self, submitted: str, start: str, end: str) -> tuple[float, float, float]:
        """Of when it was submitted, began and ended."""
        if not (self.known(start) and self.known(end)):
            raise _LeftOutError("without a start or an end")
        started_s, ended_s = self._time(start), self._time(end)
        submitted_s = self._time(submitted) if self.known(submitted) else started_s
        # As local times have it when clocks are put back, and Slurm where it queues a job again.
        if submitted_s > started_s:
            raise _LeftOutError("that began before it was submitted")
        if ended_s < started_s:
            raise _LeftOutError("that ended before it began")
        if ended_s == started_s:
            raise _LeftOutError("that took no time")
        return submitted_s, started_s, ended_s

    def _time(self, name: str) -> float:
        return self._clock.seconds(self.text(name), lambda what: self.error(name, what))

    def error(self, name: str, what: str) -> UsageError:
        return UsageError(f"{self.place}: {name}: {what}.")


def _table(text: str, file: str) -> Iterator[Callable[[], LoggedJob]]:
    lines = text.splitlines()
    first = next((number for number, line in enumerate(lines) if line.strip()), None)
    if first is None:
        raise UsageError(f"{file} is empty; it needs a scheduler's log, or a CSV.")
    header = lines[first]
    separator = max("|", ",", ";", "\t", key=header.count)
    slurm = header.lstrip().lower().startswith("jobid")
    if slurm and "|" not in header:
        raise UsageError(f"{file}:{first + 1}: its fields must be separated by |; use `sacct -P`.")
    needed = (
        ("JobID", "JobName", "Submit", "Start", "End", "State", "AllocTRES", "NodeList")
        if slurm
        else ("name", "submitted", "start", "end", "gpus")
    )
    inside = io.StringIO(text, newline="")
    reader = (
        # sacct puts nothing in quotes, and names of jobs may have them.
        csv.reader(inside, delimiter=separator, quoting=csv.QUOTE_NONE)
        if slurm
        else csv.reader(inside, delimiter=separator, strict=True)
    )
    lower = {name.lower(): name for name in needed}
    names: list[str] = []
    clock, seen = _Clock(), set[tuple[str, str]]()
    for fields in _fields(reader, file):
        place = f"{file}:{reader.line_num}"
        if not names:
            names = [lower.get(each.strip().lower(), each.strip().lower()) for each in fields]
            _require_columns(place, names, needed)
            continue
        if len(fields) > len(names):
            fields = _merged(fields, names) if slurm else fields
            if len(fields) > len(names):
                error = UsageError(
                    f"{place}: has {len(fields)} fields, and the header has {len(names)}; put a"
                    f" name that has a {separator!r} in quotes."
                )
                yield lambda error=error: _refuse(error)  # type: ignore[misc]
                continue
        row = _Row(place, dict(zip(names, fields, strict=False)), clock)
        if not slurm:
            yield lambda row=row: _plain(row)  # type: ignore[misc]
        elif "." not in row.fields.get("JobID", ""):  # else it is a step of a job
            yield lambda row=row: _sacct(row, seen)  # type: ignore[misc]


def _refuse(error: UsageError) -> LoggedJob:
    raise error


def _fields(reader: Any, file: str) -> Iterator[list[str]]:
    """Lines that aren't blank."""
    try:
        for fields in reader:
            if any(field.strip() for field in fields):
                yield fields
    except csv.Error as error:
        raise UsageError(f"{file}:{reader.line_num}: {error}; is a quote open before it?") from None


def _require_columns(place: str, names: Sequence[str], needed: Sequence[str]) -> None:
    if missing := [name for name in needed if name not in names]:
        raise UsageError(
            f"{place}: there is no column {', '.join(missing)}; there must be {', '.join(needed)}."
        )
    if twice := [name for name in needed if names.count(name) > 1]:
        raise UsageError(f"{place}: there are two columns {twice[0]}; keep one.")


def _merged(fields: list[str], names: Sequence[str]) -> list[str]:
    """Fields of sacct where the job's name has the separator, too."""
    first, more = names.index("JobName"), len(fields) - len(names)
    return [
        *fields[:first],
        "|".join(fields[first : first + more + 1]),
        *fields[first + more + 1 :],
    ]


def _sacct(row: _Row, seen: set[tuple[str, str]]) -> LoggedJob:
    """seen: jobs so far, and their starts; one that was queued again has another one."""
    state = row.text("State").split()[0].lower()
    # Slurm may list all GPUs, those of each type, or both.
    listed = dict(_GPU.findall(row.fields.get("AllocTRES") or ""))
    for count in listed.values():
        if not re.fullmatch("[0-9]{1,9}", count):
            raise row.error("AllocTRES", f"{count!r} is no number of GPUs")
    gpus = int(listed.pop("", 0)) or sum(map(int, listed.values()))
    if not (row.known("Start") and row.known("End")):
        raise _LeftOutError(state)
    if not gpus:
        raise _LeftOutError("without GPUs")
    times = row.times("Submit", "Start", "End")
    key = row.text("JobID"), row.text("Start")
    if key in seen:
        raise _LeftOutError("listed twice")
    seen.add(key)
    job = _job(row, row.text("JobName"), times, gpus, _hosts(row, "NodeList"))
    return replace(job, id=key[0], again=state in _AGAIN)


def _plain(row: _Row) -> LoggedJob:
    if re.fullmatch(r"[0-9]*\.0*[1-9][0-9]*", row.known("gpus")):
        # Parts of a GPU are inside one server; no job that sends has them.
        raise _LeftOutError("with a part of a GPU")
    gpus = row.count("gpus") if row.known("gpus") else 0
    if not gpus:
        raise _LeftOutError("without GPUs")
    times = row.times("submitted", "start", "end")
    job = _job(row, row.text("name"), times, gpus, _hosts(row, "nodes"))
    iterations = None
    if row.known("iterations"):
        iterations = row.count("iterations")
        if not iterations:
            raise row.error("iterations", "must be 1 or more")
    elif text := row.known("iteration"):
        try:
            each_s = float(text)
        except ValueError:
            each_s = math.nan
        if not each_s > 0:
            raise row.error("iteration", f"must be seconds, more than 0, not {text!r}")
        iterations = max(1, round((job.end_s - job.start_s) / each_s))
    return replace(job, iterations=iterations, model=row.known("model"))


def _hosts(row: _Row, name: str) -> tuple[str, ...]:
    """Nodes of a job; none where they aren't known."""
    try:
        found = hosts(row.known(name).replace(";", ","))
    except UsageError as error:
        raise row.error(name, str(error).rstrip(".")) from None
    return tuple(dict.fromkeys(found))


def _job(
    row: _Row, name: str, times: tuple[float, float, float], gpus: int, nodes: Sequence[str]
) -> LoggedJob:
    if gpus > _MOST_GPUS:
        raise row.error("GPUs", f"{gpus} of them are more than any job has")
    if len(nodes) > gpus:
        raise row.error("nodes", f"{len(nodes)} of them, and {counted(gpus, 'GPU')}")
    return LoggedJob(name, *times, gpus, tuple(nodes))


def _json(text: str, file: str) -> Iterator[Callable[[], LoggedJob]]:
    """Entries of `sacct --json`, or a list of Kubernetes."""
    try:
        whole = json.loads(text)
        if isinstance(whole, dict) and isinstance(whole.get("jobs"), list):
            yield from _slurm_json(whole["jobs"], file)
            return
        items = whole["items"]
        kinds = [str(item["kind"]) for item in items]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UsageError(
            f"{file} is not a list of Kubernetes objects in JSON, as `kubectl get … -o json`"
            " prints it, and not what `sacct --json` prints."
        ) from None
    clock = _Clock()
    for number, (kind, item) in enumerate(zip(kinds, items, strict=True)):
        if kind not in ("Workload", "Job"):
            raise UsageError(f"{file}: items[{number}]: kind {kind} is no Workload and no Job.")
        place = f"{file}: items[{number}]"
        yield lambda p=place, k=kind, i=item: _object(p, k, i, clock)  # type: ignore[misc]


def _slurm_json(jobs: Sequence[object], file: str) -> Iterator[Callable[[], LoggedJob]]:
    clock, seen = _Clock(), set[tuple[str, str]]()
    for number, job in enumerate(jobs):
        place = f"{file}: jobs[{number}]"
        yield lambda p=place, j=job: _sacct(_Row(p, _slurm_fields(p, j), clock), seen)  # type: ignore[misc]


def _slurm_fields(place: str, job: object) -> dict[str, str]:
    """The fields of an entry of `sacct --json` as those of sacct's table."""
    if not isinstance(job, dict):
        raise UsageError(f"{place}: must be a mapping, not {job!r:.40}.")
    times = _under(place, job, "time", dict)
    # A time that isn't known is 0.
    at = {name: str(times.get(name) or "") for name in ("submission", "start", "end")}
    state = _under(place, job, "state", dict).get("current") or ["unknown"]
    gpus = [
        f"gres/{_under(place, each, 'name', str)}={_whole(place, 'count', each.get('count'))}"
        for each in _under(place, job, "tres.allocated", list)
        if _under(place, each, "type", str) == "gres"
        and _under(place, each, "name", str).startswith("gpu")
    ]
    return {
        "JobID": str(job.get("job_id") or ""),
        "JobName": _under(place, job, "name", str),
        "Submit": at["submission"],
        "Start": at["start"],
        "End": at["end"],
        "State": str(state[0] if isinstance(state, list) else state),
        "AllocTRES": ",".join(gpus),
        "NodeList": _under(place, job, "nodes", str),
    }


def _object(place: str, kind: str, item: Mapping[str, Any], clock: _Clock) -> LoggedJob:
    """A Workload of Kueue or a Job of Volcano."""
    names = ["type", "status"] if kind == "Workload" else ["status", ""]
    at: dict[str, str] = {}
    for each in _under(place, item, "status.conditions", list):
        name, status = (_under(f"{place}: status.conditions", each, n, str) for n in names)
        if kind == "Job" or status == "True":
            at[name] = _under(f"{place}: status.conditions", each, "lastTransitionTime", str)
    if kind == "Workload":
        begun, ended, pods, count = "Admitted", ["Finished"], "podSets", "count"
    else:
        ends = ["Completed", "Failed", "Aborted", "Terminated"]
        begun, ended, pods, count = "Running", ends, "tasks", "replicas"
    gpus = 0
    for number, pod in enumerate(_under(place, item, f"spec.{pods}", list)):
        inside = f"{place}: spec.{pods}[{number}]"
        containers = _under(inside, pod, "template.spec.containers", list)
        gpus += _whole(inside, count, (pod or {}).get(count, 1)) * sum(
            _gpus(inside, each) for each in containers
        )
    fields = {
        "name": _under(place, item, "metadata.name", str),
        "submitted": _under(place, item, "metadata.creationTimestamp", str),
        "start": at.get(begun, ""),
        "end": next((at[each] for each in ended if each in at), ""),
    }
    row = _Row(place, fields, clock)
    times = row.times("submitted", "start", "end")
    if not gpus:
        raise _LeftOutError("without GPUs")
    return _job(row, row.text("name"), times, gpus, ())


def _under(place: str, item: object, path: str, kind: type[T]) -> T:
    """The value at a path such as `spec.podSets` of an object; an empty one where it is missing."""
    for key in filter(None, path.split(".")):
        if item is not None and not isinstance(item, dict):
            raise UsageError(f"{place}: {path}: there is {item!r:.40} where {key} should be.")
        item = None if item is None else item.get(key)
    if item is None or path == "":
        return kind()
    if not isinstance(item, kind):
        raise UsageError(f"{place}: {path}: must be {_WORDS[kind]}, not {item!r:.40}.")
    return item


def _gpus(place: str, container: object) -> int:
    """Return the GPUs that a container of a pod asks for."""
    asked = {
        each: _under(place, container, f"resources.{each}", dict) for each in ("limits", "requests")
    }
    # A limit without a request is the request, too, as most GPUs are asked for.
    listed = asked["limits"] | asked["requests"]
    return sum(
        _whole(place, name, value)
        for name, value in listed.items()
        if _GPU_RESOURCE.fullmatch(name)
    )


def _whole(place: str, name: str, value: object) -> int:
    if isinstance(value, bool) or not re.fullmatch("[0-9]{1,9}", str(value)):
        raise UsageError(f"{place}: {name}: must be a whole number, not {value!r:.40}.")
    return int(str(value))
