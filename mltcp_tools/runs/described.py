"""What the analysis needs to know of an experiment, read tolerantly from a run folder.

The testbed validates experiments; here a damaged or missing file costs only the measures that need
it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml

from mltcp_tools.emulator.patterns import Pattern, connections
from mltcp_tools.errors import MltcpError
from mltcp_tools.units import parse_bytes, parse_rate, parse_seconds

ALONE = "alone"
BASES = {
    "mltcp": "reno",
    "mltcp_reno": "reno",
    "mltcp_cubic": "cubic",
    "mltcp_dctcp": "dctcp",
    "mltcp_int": "reno",
}
"""The congestion control that each of MLTCP's builds on."""
_MANNERS = ("split", "active", "chunk", "rate", "pattern", "pieces", "hosts")
_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True)
class DescribedJob:
    """A job's parameters that decide how long its communication takes with the link to itself.

    bytes: per iteration. compute_s: seconds per iteration before jitter. direction: send, receive
    or both. iterations: how many it runs. active: how many of its flows carry a burst. manner: what
    else shapes a burst, as written. links: those it crosses where there are several. rate_bps: the
    most it sends, bit/s, where it is limited. connections: of its ranks, where it has a pattern.
    None where the experiment doesn't say.
    """

    name: str
    bytes: int | None
    compute_s: float | None
    flows: int
    bursts: int
    direction: str
    iterations: int | None
    active: int | None = None
    manner: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    rate_bps: int | None = None
    connections: int | None = None

    @property
    def carrying(self) -> int:
        """How many of its flows carry a burst."""
        return self.connections or min(self.flows, self.active or self.flows)

    @property
    def key(self) -> tuple[object, ...]:
        """Jobs with equal keys communicate alike when alone."""
        return (
            self.bytes,
            self.compute_s,
            self.flows,
            self.bursts,
            self.direction,
            self.manner,
            self.links,
        )


@dataclass(frozen=True)
class DescribedExperiment:
    """An experiment as far as it could be read; `document` is the file's content, or {}.

    rate_bps: the bottleneck's rate in bits per second, the sum where there are several, and None
    in a fabric. link_rates:
    name of a link ("" for the only one) -> its rate, bit/s. delay_s: what the link adds to the
    round trip, seconds. neighbours: name -> congestion control, or "arm" for that of the arm.
    arms: name -> congestion control and its parameters, without `alone`.
    """

    name: str = "unnamed"
    description: str = ""
    rate_bps: int | None = None
    link_rates: dict[str, int] = field(default_factory=dict)
    delay_s: float = 0.0
    jobs: dict[str, DescribedJob] = field(default_factory=dict)
    neighbours: dict[str, str] = field(default_factory=dict)
    arms: dict[str, dict[str, Any]] = field(default_factory=dict)
    baseline: str | None = None
    repetitions: int | None = None
    document: dict[str, Any] = field(default_factory=dict)

    @property
    def recorded(self) -> bool:
        """Whether attached jobs were recorded, over a network of which nothing is known."""
        return self.document.get("recorded") is True

    @property
    def reduces(self) -> bool:
        """Whether jobs reduced tensors by collectives: links don't carry each job's bytes once."""
        return "collectives" in self.document

    @property
    def lone_cc(self) -> str | None:
        """The congestion control of the arm `alone`: the baseline's."""
        cc = self.arms.get(self.baseline or "", {}).get("cc")
        return str(cc) if cc else None

    def base_of(self, arm: str) -> str | None:
        """The arm that `arm` is compared with: the one it names, else the first one without a
        treatment that has the congestion control its own builds on; None for an arm that builds on
        none."""
        described = self.arms.get(arm, {})
        if described.get("base") in self.arms:
            return str(described["base"])
        wanted = BASES.get(str(described.get("cc")))
        plain = (name for name in self.arms if not self.treatments_of(name))
        return next((name for name in plain if self.arms[name].get("cc") == wanted), None)

    def treatments_of(self, arm: str) -> dict[str, Any]:
        """The treatments of an arm, name -> settings; `plan: true` is cassini's older name."""
        described = self.arms.get(arm, {})
        treatment = described.get("treatment")
        found = dict(treatment) if isinstance(treatment, dict) else {}
        return found | ({"cassini": {}} if described.get("plan") is True else {})

    def entries(self, field_name: str) -> list[dict[str, Any]]:
        """The mappings in a list of the document."""
        return _entries(self.document, field_name)


def read_experiment(path: Path, problems: list[str]) -> DescribedExperiment:
    """The experiment in `path`; what can't be read is appended to `problems`, never raised."""
    if not path.is_file():
        problems.append(f"{path.name} is missing; names and parameters come from the tables alone.")
        return DescribedExperiment()
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8", errors="replace"))
    except (yaml.YAMLError, OSError, ValueError, LookupError, ArithmeticError, RecursionError):
        # PyYAML leaves the 13th month, numbers of 5000 digits and the like to Python.
        problems.append(f"{path.name} is not readable YAML; the tables alone are used.")
        return DescribedExperiment()
    if not isinstance(document, dict):
        problems.append(f"{path.name} describes no experiment; the tables alone are used.")
        return DescribedExperiment()
    return view_experiment(document, problems)


def view_experiment(document: dict[str, Any], problems: list[str]) -> DescribedExperiment:
    """An experiment's document (the YAML file's content) as the analysis sees it."""
    link_rates = _link_rates(document, problems)
    iterations = _whole(document.get("iterations"))
    jobs: dict[str, DescribedJob] = {}
    for entry in _entries(document, "jobs"):
        for job in _jobs_of(entry, iterations, problems):
            jobs[job.name] = job
    if not jobs:
        problems.append("The experiment names no jobs.")
    arms = document.get("arms")
    return DescribedExperiment(
        name=str(document.get("name") or "unnamed"),
        description=str(document.get("description") or ""),
        rate_bps=None if "fabric" in document else sum(link_rates.values()) or None,
        link_rates=link_rates,
        delay_s=_delay_s(document, problems),
        jobs=jobs,
        neighbours={
            name: str(entry.get("cc"))
            for entry in _entries(document, "neighbours")
            for name in _names(entry, "neighbour")
        },
        arms={
            str(name): dict(arm) if isinstance(arm, dict) else {}
            for name, arm in (arms.items() if isinstance(arms, dict) else ())
            if name != ALONE
        },
        baseline=str(document["baseline"]) if document.get("baseline") else None,
        repetitions=_whole(document.get("repetitions")),
        document=document,
    )


def _jobs_of(
    entry: dict[str, Any], iterations: int | None, problems: list[str]
) -> list[DescribedJob]:
    name = str(entry.get("name") or "job")
    size = _quantity(parse_bytes, entry.get("bytes"), f"size of job {name}", problems)
    compute = _quantity(
        parse_seconds, entry.get("compute"), f"compute time of job {name}", problems
    )
    links = entry.get("links")
    return [
        DescribedJob(
            name=each,
            bytes=size,
            compute_s=compute,
            flows=_whole(entry.get("flows")) or 1,
            bursts=_whole(entry.get("bursts")) or 1,
            direction=str(entry.get("direction") or "send"),
            iterations=_whole(entry.get("iterations")) or iterations,
            active=_whole(entry.get("active")),
            rate_bps=_quantity(_rate, entry["rate"], f"rate of job {name}", problems)
            if entry.get("rate")
            else None,
            links=tuple(str(link) for link in links) if isinstance(links, list) else (),
            manner=tuple(str(entry.get(key)) for key in _MANNERS),
            connections=_connections(entry, size),
        )
        for each in _names(entry, "job")
    ]


def _connections(entry: dict[str, Any], size: int | None) -> int | None:
    """How many connections the ranks of a job with a pattern have."""
    hosts = entry.get("hosts")
    if not entry.get("pattern") or not isinstance(hosts, list) or not size:
        return None
    try:
        pattern = Pattern(str(entry["pattern"]), len(hosts), _whole(entry.get("pieces")) or 1)
        return len(connections(pattern.tasks(size, _whole(entry.get("flows")) or 1)))
    except MltcpError:
        return None


def _link_rates(document: dict[str, Any], problems: list[str]) -> dict[str, int]:
    """The rate of each link, bit/s; {} where one can't be read, or none says what jobs need."""
    if document.get("recorded") is True or "collectives" in document:
        return {}
    fabric = document.get("fabric")
    if isinstance(fabric, dict):
        # The slowest link of each kind is enough; patterned.py knows the whole fabric.
        parts = {name: fabric.get(name) for name in ("access", "uplink")}
        document = {"links": parts}
    several = document.get("links")
    links = several if isinstance(several, dict) else {"": document.get("link")}
    found = {}
    for name, link in links.items():
        rate = link.get("rate") if isinstance(link, dict) else None
        known = _quantity(_rate, rate, "link rate", problems)
        if not known:
            return {}
        found[str(name)] = known
    return found


def _delay_s(document: dict[str, Any], problems: list[str]) -> float:
    link = document.get("link")
    delay = link.get("delay") if isinstance(link, dict) else None
    return _quantity(parse_seconds, delay, "link delay", problems) or 0.0 if delay else 0.0


def _entries(document: dict[str, Any], field_name: str) -> list[dict[str, Any]]:
    entries = document.get(field_name)
    return [each for each in entries if isinstance(each, dict)] if isinstance(entries, list) else []


def _names(entry: dict[str, Any], default: str) -> list[str]:
    """The names that `count` makes of an entry's."""
    name, count = str(entry.get("name") or default), _whole(entry.get("count")) or 1
    return [name] if count == 1 else [f"{name}-{number}" for number in range(1, count + 1)]


def _rate(value: object) -> int:
    return round(value) if isinstance(value, (int, float)) else parse_rate(value)


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def _quantity(
    parse: Callable[[object], _Number], value: object, what: str, problems: list[str]
) -> _Number | None:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value  # type: ignore[return-value]  # in bytes or seconds, by older versions
    try:
        return parse(value)
    except MltcpError:
        problems.append(f"The experiment's {what} ({value!r}) can't be read.")
        return None
