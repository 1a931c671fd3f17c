# SPDX-License-Identifier: BSD-2-Clause
"""Jobs from a scheduler's log: Slurm's sacct, lists of Kubernetes objects, a plain CSV.

tables.py reads sacct's tables and CSVs; kubernetes.py reads `sacct --json`, Workloads of Kueue,
Jobs of Volcano, and plain Jobs. Times are ISO 8601 or seconds since 1970, the same in all of a log.
Without a zone they count as UTC, which changes nothing but on days on which clocks change.

A log of another form raises a UsageError that names line or entry and field. Entries that can't be
read are left out and counted, as long as they are fewer than half. So are jobs that haven't begun
or ended, or had no GPU; those that failed or were cancelled had their GPUs and links as others do.
Of jobs on parts of a GPU, which send nothing between servers, only the GPU hours are kept. Jobs of
one name are told apart by numbers.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from mltcp_tools.base.errors import UsageError
from mltcp_tools.base.units import counted

_NONE = {"", "-", "n/a", "nan", "nat", "none", "none assigned", "null", "unknown"}
"""Words of Slurm, Python and spreadsheets for an unknown value."""
_LAST_S = 1e11
"""Larger numbers of seconds since 1970 are milliseconds."""
_LONGEST_S = 20 * 365 * 86_400
"""Longest time that a log may cover, seconds."""
_MOST_GPUS = 1_000_000


@dataclass(frozen=True)
class LoggedJob:
    """A job that ran to its end; seconds since some instant.

    gpus: not whole for parts of a GPU. placement: GPUs on each node, empty if unknown. iterations:
    None where the log doesn't say. idle_s: seconds between start and end without GPUs. id: of
    Slurm, "" for others. again: its state says that it has to start again.
    """

    name: str
    submitted_s: float
    start_s: float
    end_s: float
    gpus: float
    placement: Mapping[str, int] = field(default_factory=dict)
    model: str = ""
    iterations: int | None = None
    idle_s: float = 0.0
    id: str = ""
    again: bool = False

    @property
    def took_s(self) -> float:
        """Seconds for which it held its GPUs."""
        return self.end_s - self.start_s - self.idle_s

    @property
    def gpu_hours(self) -> float:
        """Return the GPU hours that it held."""
        return self.gpus * self.took_s / 3600


@dataclass(frozen=True)
class Log:
    """jobs: in the order of submission. parts: number and GPU hours of jobs on parts of a GPU.
    left_out: reason -> number of jobs. notes: sentences on what the log may lack."""

    jobs: tuple[LoggedJob, ...]
    parts: tuple[int, float] = (0, 0.0)
    left_out: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class LeftOutError(Exception):
    """A job that didn't run on GPUs from a start to an end; the reason."""


Reader = Callable[[], LoggedJob]


def read_log(path: Path) -> Log:
    """Jobs of a log, of any kind."""
    from mltcp_tools.clusters.own import kubernetes, tables

    text = text_of(path)
    notes: Counter[str] = Counter()
    if not text.lstrip().startswith(("{", "[")):
        readers = tables.table(text, str(path))
    else:
        readers = kubernetes.documents(text, str(path), notes)
    left_out: Counter[str] = Counter()
    wrong: list[UsageError] = []
    found = []
    for read in readers:
        try:
            found.append(read())
        except LeftOutError as reason:
            left_out[str(reason)] += 1
        except UsageError as error:
            wrong.append(error)
    if wrong:
        if len(wrong) >= len(found):
            raise wrong[0]
        left_out[f"that can't be read (first {str(wrong[0]).rstrip('.')})"] = len(wrong)
    found = list(_joined(found))
    parts = [job.gpu_hours for job in found if job.gpus != int(job.gpus)]
    jobs = [replace(job, gpus=int(job.gpus)) for job in found if job.gpus == int(job.gpus)]
    if not jobs:
        said = "; ".join(f"{count} {reason}" for reason, count in left_out.items())
        raise UsageError(f"{path} has no job that ran on GPUs and ended ({said or 'it is empty'}).")
    _require_near(path, jobs)
    jobs.sort(key=lambda job: (job.submitted_s, job.start_s, job.name))
    models = models_of(job.name for job in jobs)
    jobs = [replace(job, model=job.model or models[job.name]) for job in jobs]
    sentences = (*_unlisted(jobs), *(f"{counted(n, 'job')} {what}" for what, n in notes.items()))
    whole = tuple(_told_apart(jobs))
    return Log(whole, (len(parts), sum(parts)), dict(left_out), sentences)


def _joined(jobs: Iterable[LoggedJob]) -> Iterator[LoggedJob]:
    """The jobs, with the components of a heterogeneous job of Slurm (7+0, 7+1) as one."""
    components: dict[tuple[str, float], list[LoggedJob]] = defaultdict(list)
    for job in jobs:
        if "+" in job.id:
            components[job.id.partition("+")[0], job.submitted_s].append(job)
        else:
            yield job
    for (number, _), own in components.items():
        first = min(own, key=lambda job: job.id)
        placement: Counter[str] = Counter()
        for job in own:
            placement.update(job.placement)
        known = all(job.placement for job in own)
        yield replace(
            first,
            id=number,
            start_s=min(job.start_s for job in own),
            end_s=max(job.end_s for job in own),
            gpus=sum(job.gpus for job in own),
            placement=dict(placement) if known else {},
        )


def _require_near(path: Path, jobs: Sequence[LoggedJob]) -> None:
    took_s = max(job.end_s for job in jobs) - min(job.submitted_s for job in jobs)
    if took_s > _LONGEST_S:
        raise UsageError(
            f"{path} has jobs that are {took_s / 86_400:.0f} days apart; leave unknown times empty."
        )


def _unlisted(jobs: Sequence[LoggedJob]) -> tuple[str, ...]:
    """A sentence where jobs were queued again and the log has no earlier run of any."""
    ids = [job.id for job in jobs if job.id]
    again = sum(job.again for job in jobs)
    if not again or len(set(ids)) < len(ids):
        return ()
    return (
        f"{counted(again, 'job')} lost a node, was preempted or was queued again, and no job is"
        " listed twice: list the earlier runs, too, with `sacct -D`.",
    )


def text_of(path: Path) -> str:
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
            f"{path}:{line}: is no text in UTF-8; convert it, for example with `iconv -f latin1 -t"
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
    """The model of each name: the part before a number that counts jobs, else the name itself.

    Numbers behind the same beginning count jobs where they leave few out, of two or fewer from 0 or
    1 on; where they have leading zeros; or where they have five digits or more. So resnet-18 and
    resnet-50 are two models.
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


class Clock:
    """Reads the times of one log, which are of one kind."""

    def __init__(self) -> None:
        self._kind = ""

    def seconds(self, text: str, error: Callable[[str], UsageError]) -> float:
        """Seconds since 1970, or since the instant from which the log counts."""
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


class Row:
    """An entry's fields; errors name the place."""

    def __init__(self, place: str, fields: Mapping[str, str], clock: Clock) -> None:
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
        return "".join(each if each.isprintable() else " " for each in text).strip()

    def count(self, name: str) -> int:
        """Return a whole number."""
        text = self.text(name)
        # Data frames write whole numbers as 8.0 where some are missing.
        if not re.fullmatch(r"[0-9]{1,9}(\.0*)?", text):
            raise self.error(name, f"must be a whole number, not {text!r}")
        return int(float(text))

    def times(self, submitted: str, start: str, end: str) -> tuple[float, float, float]:
        """Instants of submission, start and end."""
        if not (self.known(start) and self.known(end)):
            raise LeftOutError("without a start or an end")
        started_s, ended_s = self.time(start), self.time(end)
        submitted_s = self.time(submitted) if self.known(submitted) else started_s
        # As local times are when clocks go back, and as Slurm writes requeued jobs.
        if submitted_s > started_s:
            raise LeftOutError("that began before it was submitted")
        if ended_s < started_s:
            raise LeftOutError("that ended before it began")
        if ended_s == started_s:
            raise LeftOutError("that took no time")
        return submitted_s, started_s, ended_s

    def time(self, name: str) -> float:
        """Return an instant."""
        return self._clock.seconds(self.text(name), lambda what: self.error(name, what))

    def error(self, name: str, what: str) -> UsageError:
        """A UsageError that names place and field."""
        return UsageError(f"{self.place}: {name}: {what}.")

    def job(
        self,
        name: str,
        times: tuple[float, float, float],
        gpus: float,
        placement: Mapping[str, int],
    ) -> LoggedJob:
        """The job, if it had GPUs."""
        if not gpus:
            raise LeftOutError("without GPUs")
        if gpus > _MOST_GPUS:
            raise self.error("GPUs", f"{gpus:g} of them are more than any job has")
        return LoggedJob(self.text(name), *times, round(gpus, 6), placement)


def equally(gpus: int, nodes: Sequence[str]) -> dict[str, int]:
    """The GPUs on each node; where they can't be equal, the first nodes have one more."""
    each, more = divmod(gpus, len(nodes)) if nodes else (0, 0)
    return {node: each + (number < more) for number, node in enumerate(nodes)}
