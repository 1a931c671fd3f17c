# SPDX-License-Identifier: BSD-2-Clause
"""Reading experiment files: every value checked, every complaint with file, line and field."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from mltcp_tools.base import values
from mltcp_tools.base.document import Section, meant, read_section
from mltcp_tools.base.errors import UsageError
from mltcp_tools.base.units import parse_bytes, parse_fraction, parse_seconds
from mltcp_tools.lab.emulator.job import MAX_BYTES, MIN_SHARE
from mltcp_tools.lab.experiments.experiment import Experiment
from mltcp_tools.lab.experiments.fabric import check_hosts, read_fabric
from mltcp_tools.lab.experiments.jobs import JOB_FIELDS, ExperimentJob, read_job
from mltcp_tools.lab.experiments.links import Link, check_paths, read_links
from mltcp_tools.lab.experiments.neighbours import OWN, Neighbour
from mltcp_tools.lab.experiments.treatments import TimeShiftSettings
from mltcp_tools.lab.experiments.variants import ALONE, Variant, congestion_control, read_variants

MAX_JOBS = 200
MAX_PLANNED = 32
"""Jobs whose shifts are planned over several links, which is done in moments."""
_SYSCTL = re.compile(r"net\.[a-z0-9_]+(\.[a-z0-9_-]+)+")
_DEFAULT_CC = "net.ipv4.tcp_congestion_control"


def shipped_experiments() -> dict[str, Path]:
    """The experiments that come with the package, by name."""
    return shipped_in(resources.files("mltcp_tools.lab.experiments"))


def shipped_matrices() -> dict[str, Path]:
    """The matrices that come with the package, by name."""
    return shipped_in(resources.files("mltcp_tools.lab.experiments") / "matrices")


def shipped_in(folder: Traversable) -> dict[str, Path]:
    """The YAML files of a folder of the package, by name."""
    return {path.stem: path for path in sorted(Path(str(folder)).glob("*.yaml"))}


def find_experiment(name_or_path: str) -> Path:
    """The file of a shipped experiment's name or of a path; a UsageError if there is neither."""
    if name_or_path in shipped_matrices():
        raise UsageError(f"{name_or_path} is a matrix of experiments; name one of the experiments.")
    return named_or_path(name_or_path, shipped_experiments(), "experiment")


def find_either(name_or_path: str) -> Path:
    """The file of a shipped experiment's or matrix's name, or of a path; else a UsageError."""
    shipped = shipped_experiments() | shipped_matrices()
    return named_or_path(name_or_path, shipped, "experiment or matrix")


def named_or_path(name_or_path: str, shipped: Mapping[str, Path], what: str) -> Path:
    """The file of that name among `shipped`, or of that path; `what` is for the message."""
    if name_or_path in shipped:
        return shipped[name_or_path]
    path = Path(name_or_path)
    if path.is_file():
        return path
    end = meant(name_or_path, shipped, "; `mltcp testbed list` shows the shipped ones.")
    raise UsageError(f"There is no {what} {name_or_path!r}, shipped or as a file{end}")


def load_experiment(path: Path | str) -> Experiment:
    """Read and validate the experiment in `path`; a UsageError names file, line and field."""
    return parse_experiment(read_file(path), str(path))


def read_file(path: Path | str) -> str:
    """The text of a YAML file; a UsageError if it can't be read."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: can't be read ({error}).") from None


def parse_experiment(text: str, file: str) -> Experiment:
    """An experiment from YAML `text`; `file` is its name for messages."""
    return read_experiment(read_section(text, file, FIELDS))


def read_experiment(top: Section) -> Experiment:
    """An experiment from its mapping, which may have FIELDS."""
    name = top.get("name", values.name)
    fabric = read_fabric(top)
    if fabric is None:
        link, links = read_links(top)
    else:
        links = fabric.links()
        link = min(links.values(), key=lambda each: each.rate)
    sysctls = _read_sysctls(top.section("sysctls", None))
    jobs = read_jobs(top)
    neighbours = read_neighbours(top, {job.name for job in jobs})
    variants = read_variants(top)
    check_hosts(top, jobs, fabric)
    if fabric is None:
        check_paths(top, (*jobs, *neighbours), links)
    elif neighbours:
        raise top.error("a fabric has no neighbours; leave them out.", "neighbours")
    alone = top.section("alone", ["iterations"])
    _check_variants(top, variants, jobs, links)
    if fabric is not None:
        _check_in_fabric(top, variants)
    names = [variant.name for variant in variants]
    return Experiment(
        name=name,
        description=top.get("description", str, ""),
        link=link,
        links=links,
        fabric=fabric,
        sysctls=sysctls,
        jobs=jobs,
        neighbours=neighbours,
        variants=variants,
        baseline=top.get(
            "baseline", values.choice(names), "cubic" if "cubic" in names else names[0]
        ),
        iterations=top.get("iterations", values.whole(1), 100),
        repetitions=top.get("repetitions", values.whole(1), 3),
        seed=top.get("seed", values.whole(0), 1),
        alone_iterations=alone.get("iterations", values.whole(0), 20) if alone else 20,
    )


def _check_variants(
    top: Section,
    variants: Iterable[Variant],
    jobs: Sequence[ExperimentJob],
    links: Mapping[str, Link],
) -> None:
    """Raise UsageError for a variant that these jobs can't be run in."""
    for variant in variants:
        if variant.treatment(TimeShiftSettings) and links and len(jobs) > MAX_PLANNED:
            raise top.error(
                f"{variant.name} can't have time shifts: over several links planning them takes"
                f" {MAX_PLANNED} jobs at most, and there are {len(jobs)}.",
                "variants",
            )


def _check_in_fabric(top: Section, variants: Iterable[Variant]) -> None:
    for variant in variants:
        if variant.treatments:
            raise top.error(
                f"{variant.name} has {variant.treatments[0].name}, which a fabric doesn't support.",
                "variants",
            )


def _read_sysctls(section: Section | None) -> dict[str, str]:
    if section is None:
        return {}
    sysctls = {}
    for key in section:
        if not _SYSCTL.fullmatch(key):
            raise section.error("only sysctls below net. belong to a namespace.", key)
        if key == _DEFAULT_CC:
            raise section.error(
                "a namespace's default is never set (the kernel leaks a reference if the congestion"
                " control is restricted); name it as the `cc` of a variant.",
                key,
            )
        sysctls[key] = section.get(key, _sysctl_value)
    return sysctls


def read_jobs(top: Section) -> tuple[ExperimentJob, ...]:
    """The jobs of an experiment, those that `count` makes among them."""
    jobs: list[ExperimentJob] = []
    taken: set[str] = set()
    for section in top.sections("jobs", JOB_FIELDS):
        job = read_job(section)
        names = _count(section, job.name, taken)
        jobs += [dataclasses.replace(job, name=name) for name in names]
    return tuple(jobs)


def _count(section: Section, name: str, taken: set[str]) -> list[str]:
    """The names that `count` makes of one, which are added to those `taken` already."""
    count = section.get("count", values.whole(1), 1)
    if len(taken) + count > MAX_JOBS:
        raise section.error(
            f"makes more than {MAX_JOBS} jobs and neighbours, the most the testbed builds."
        )
    names = [f"{name}-{number}" for number in range(1, count + 1)] if count > 1 else [name]
    for each in names:
        if each in taken:
            raise section.error(f"another one is called {each!r} already.", "name")
        taken.add(each)
    return names


def read_neighbours(top: Section, taken: set[str]) -> tuple[Neighbour, ...]:
    """The neighbours; `taken` are the names of the jobs."""
    if "neighbours" not in top:
        return ()
    neighbours: list[Neighbour] = []
    for section in top.sections("neighbours", [*_fields(Neighbour), "count"]):
        neighbour = Neighbour(
            name=section.get("name", values.name, "neighbour"),
            cc=section.get("cc", lambda value: OWN if value == OWN else congestion_control(value)),
            size=section.get(
                "size", values.within(parse_bytes, MIN_SHARE, MAX_BYTES, "bytes"), None
            ),
            think=section.get("think", values.within(parse_seconds, 0.0, 3600.0, "seconds"), 0.0),
            jitter=section.get(
                "jitter", values.within(parse_fraction, 0.0, 1.0, "(0% to 100%)"), 0.0
            ),
            links=section.get("links", values.words, ()),
        )
        for key in ("think", "jitter"):
            if neighbour.size is None and getattr(neighbour, key):
                raise section.error("belongs to requests; give their `size`, too.", key)
        names = _count(section, neighbour.name, taken)
        neighbours += [dataclasses.replace(neighbour, name=name) for name in names]
    return tuple(neighbours)


def _fields(kind: type[Any]) -> list[str]:
    return [field.name for field in dataclasses.fields(kind)]


FIELDS = [
    *(name for name in _fields(Experiment) if name != "alone_iterations"),
    ALONE,
]
"""The fields of an experiment file."""


def _sysctl_value(value: object) -> str:
    return str(int(value) if isinstance(value, bool) else value)
