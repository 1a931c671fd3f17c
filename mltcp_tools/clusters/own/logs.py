# SPDX-License-Identifier: BSD-2-Clause
"""Jobs from a scheduler's log: Slurm's sacct, lists of Kubernetes objects, a plain CSV.

tables.py reads sacct's tables and CSVs; kubernetes.py reads `sacct --json`, Workloads of Kueue, and
Jobs of Volcano. Times are ISO 8601 or seconds since 1970, the same in all of a log.
Without a zone they count as UTC.

A log of another form raises a UsageError that names line or entry and field. Entries that can't be
read are left out and counted, as long as they are fewer than half. So are jobs that haven't begun
or ended, or had no GPU; those that failed or were cancelled had their GPUs and links as others do.
Of jobs on parts of GPUs, which send nothing between servers, and of runs before evictions, of which
nobody says where they were, only the GPU hours are kept. Jobs of Slurm are called NAME.JOBID;
others of one name are told apart by #2, #3, ….
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from mltcp_tools.base.errors import UsageError
from mltcp_tools.base.units import counted
from mltcp_tools.clusters.own import kubernetes, tables
from mltcp_tools.clusters.own.entries import LeftOutError, LoggedJob
from mltcp_tools.lab.planning.reading import read_text

_LONGEST_S = 20 * 365 * 86_400
"""Longest time that a log may cover, seconds."""


@dataclass(frozen=True)
class Log:
    """jobs: in the order of submission. parts: number of jobs on parts of GPUs. other_hours: GPU
    hours of those, and of runs before evictions. left_out: reason -> number of jobs. notes:
    sentences on what the log may lack."""

    jobs: tuple[LoggedJob, ...]
    parts: int = 0
    other_hours: float = 0.0
    left_out: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def read_log(path: Path) -> Log:
    """Jobs of a log, of any kind."""
    text = read_text(path)
    if not text.lstrip().startswith(("{", "[")):
        readers = tables.table(text, str(path))
    else:
        readers = kubernetes.documents(text, str(path))
    left_out: Counter[str] = Counter()
    wrong: list[UsageError] = []
    found: list[LoggedJob] = []
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
    found = _joined(found)
    jobs = [replace(job, gpus=int(job.gpus)) for job in found if job.gpus == int(job.gpus)]
    parts = [job.gpu_hours for job in found if job.gpus != int(job.gpus)]
    other_hours = sum(parts) + sum(job.gpus * job.earlier_s / 3600 for job in found)
    if not jobs:
        said = "; ".join(f"{count} {reason}" for reason, count in left_out.items())
        hint = " Slurm lists GPUs where AccountingStorageTRES has gres/gpu."
        raise UsageError(
            f"{path} has no job that ran on GPUs and ended ({said or 'it is empty'})."
            + hint * (tables.UNCOUNTED in left_out)
        )
    took_s = max(job.end_s for job in jobs) - min(job.submitted_s for job in jobs)
    if took_s > _LONGEST_S:
        raise UsageError(
            f"{path} has jobs that are {took_s / 86_400:.0f} days apart; leave unknown times empty."
        )
    jobs.sort(key=lambda job: (job.submitted_s, job.start_s, job.name))
    models = models_of(job.name for job in jobs)
    jobs = [replace(job, model=job.model or models[job.name]) for job in jobs]
    whole = tuple(_told_apart(jobs))
    return Log(whole, len(parts), other_hours, dict(left_out), tuple(_notes(found)))


def _joined(jobs: Iterable[LoggedJob]) -> list[LoggedJob]:
    """The jobs, with the components of a heterogeneous job of Slurm (7+0, 7+1) as one."""
    found: dict[object, LoggedJob] = {}
    for job in jobs:
        number, component, _ = job.id.partition("+")
        key = (number, job.submitted_s) if component else len(found)
        own = replace(job, id=number)
        if first := found.get(key):
            known = first.placement and own.placement
            own = replace(
                first,
                start_s=min(first.start_s, own.start_s),
                end_s=max(first.end_s, own.end_s),
                gpus=first.gpus + own.gpus,
                placement=Counter(first.placement) + Counter(own.placement) if known else {},
            )
        found[key] = own
    return list(found.values())


def _notes(jobs: Iterable[LoggedJob]) -> Iterator[str]:
    """Sentences on runs that aren't listed, or that count as jobs of their own."""
    ids = [job.id for job in jobs if job.id]
    if later := len(ids) - len(set(ids)):
        yield f"Each run of a requeued job counts as a job: {counted(later, 'later run')}."
    else:
        for lacks, count in Counter(job.lacks for job in jobs if job.lacks).items():
            yield f"{counted(count, 'job')} {lacks}"


def _told_apart(jobs: Iterable[LoggedJob]) -> Iterator[LoggedJob]:
    """The jobs, with their ids in their names; of those that have one name all but the first get a
    number."""
    seen: Counter[str] = Counter()
    for job in jobs:
        name = f"{job.name}.{job.id}" if job.id else job.name
        seen[name] += 1
        yield replace(job, name=name if seen[name] == 1 else f"{name}#{seen[name]}")


def models_of(names: Iterable[str]) -> dict[str, str]:
    """The model of each name: the part before a number that counts jobs, else the name itself.

    Numbers behind the same beginning count jobs where they leave few out, of two or fewer from 0 or
    1 on; where they have leading zeros; or where they have five digits or more. So resnet-18 and
    resnet-50 are two models. So do numbers that are dense over all beginnings, each there once, and
    all numbers behind a word `run`.
    """
    found = {name: name for name in names}
    begun: dict[str, dict[str, int]] = defaultdict(dict)
    for name in found:
        if run := re.fullmatch(r"(.*[^-_./ ])[-_./ ]+run[-_./ ]*[0-9]+", name, re.IGNORECASE):
            found[name] = run[1]
        elif match := re.fullmatch(r"(.*[^-_./ ])[-_./ ]+([0-9]+)", name):
            begun[match[1]][name] = int(match[2])
            if len(match[2]) > 4 or (match[2][0] == "0" and len(match[2]) > 1):
                found[name] = match[1]
    every = [number for numbers in begun.values() for number in numbers.values()]
    if len({*every}) == len(every) > 3 and max(every) - min(every) < 2 * len(every):
        return found | {name: start for start, names in begun.items() for name in names}
    for beginning, numbers in begun.items():
        values = set(numbers.values())
        dense = max(values) - min(values) < 2 * len(values)
        if dense and (min(values) <= 1 or len(values) > 3):
            found |= dict.fromkeys(numbers, beginning)
    return found
