"""Reading experiment files: every value checked, every complaint with file, line and field."""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Callable, Collection
from importlib import resources
from pathlib import Path
from typing import Any

from mltcp_tools.backends.base import ALL_NAMES, JobParams
from mltcp_tools.document import Section, read_section
from mltcp_tools.emulator.job import DIRECTIONS, MAX_FLOWS
from mltcp_tools.errors import UsageError
from mltcp_tools.testbed.experiment import (
    ALONE,
    AQMS,
    Aqm,
    Arm,
    Experiment,
    Job,
    Link,
    Straggler,
    is_mltcp,
)
from mltcp_tools.units import parse_bytes, parse_fraction, parse_rate, parse_seconds

MAX_JOBS = 200
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,30}")
_SYSCTL = re.compile(r"net\.[a-z0-9_]+(\.[a-z0-9_-]+)+")
_DEFAULT_CC = "net.ipv4.tcp_congestion_control"


def shipped_experiments() -> dict[str, Path]:
    """The experiments that come with the package, by name."""
    folder = Path(str(resources.files("mltcp_tools.experiments")))
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def find_experiment(name_or_path: str) -> Path:
    """The file of a shipped experiment's name or of a path; a UsageError if there is neither."""
    shipped = shipped_experiments()
    if name_or_path in shipped:
        return shipped[name_or_path]
    path = Path(name_or_path)
    if path.is_file():
        return path
    raise UsageError(
        f"no experiment file or shipped experiment is called {name_or_path!r}; shipped are"
        f" {', '.join(shipped)}."
    )


def load_experiment(path: Path | str) -> Experiment:
    """Read and validate the experiment in `path`; a UsageError names file, line and field."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: can't be read ({error}).") from None
    return parse_experiment(text, str(path))


def parse_experiment(text: str, file: str) -> Experiment:
    """An experiment from YAML `text`; `file` is its name for messages."""
    top = read_section(text, file, _TOP_FIELDS)
    name = top.get("name", _name)
    link = _read_link(top.section("link", _fields(Link)))
    sysctls = _read_sysctls(top.section("sysctls", None))
    jobs = _read_jobs(top)
    arms = _read_arms(top)
    names = [arm.name for arm in arms]
    alone = top.section("alone", ["iterations"])
    return Experiment(
        name=name,
        description=top.get("description", str, ""),
        link=link,
        sysctls=sysctls,
        jobs=jobs,
        arms=arms,
        baseline=top.get("baseline", _choice(names), "cubic" if "cubic" in names else names[0]),
        iterations=top.get("iterations", _whole(1), 100),
        repetitions=top.get("repetitions", _whole(1), 3),
        seed=top.get("seed", _whole(0), 1),
        alone_iterations=alone.get("iterations", _whole(0), 20) if alone else 20,
    )


def _read_link(section: Section | None) -> Link:
    if section is None:
        return Link()
    default_aqm: Aqm = Link.aqm
    link = Link(
        # tbf counts its rate in 32 bits of bytes per second
        rate=section.get(
            "rate", _within(parse_rate, 1_000_000, 30_000_000_000, "bit/s"), Link.rate
        ),
        # less than two packets of 1514 bytes is no queue
        queue=section.get("queue", _within(parse_bytes, 3_028, 1 << 30, "bytes"), Link.queue),
        delay=section.get("delay", _within(parse_seconds, 0.0, 10.0, "seconds"), Link.delay),
        aqm=section.get("aqm", _choice(AQMS), default_aqm),
        ecn=section.get("ecn", _yes_no, Link.ecn),
    )
    if link.ecn and link.aqm == "none":
        marking = " or ".join(AQMS[1:])
        raise section.error(f"a queue marks only under an `aqm`: {marking}.", "ecn")
    return link


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
                " control is restricted); name it as the `cc` of an arm.",
                key,
            )
        sysctls[key] = section.get(key, _sysctl_value)
    return sysctls


def _read_jobs(top: Section) -> tuple[Job, ...]:
    jobs: list[Job] = []
    for section in top.sections("jobs", [*_fields(Job), "count"]):
        job = _read_job(section)
        count = section.get("count", _whole(1), 1)
        if len(jobs) + count > MAX_JOBS:
            raise section.error(f"makes more than {MAX_JOBS} jobs, the most the testbed builds.")
        names = [f"{job.name}-{number}" for number in range(1, count + 1)]
        for name in names if count > 1 else [job.name]:
            if any(other.name == name for other in jobs):
                raise section.error(f"another job is called {name!r} already.", "name")
            jobs.append(dataclasses.replace(job, name=name))
    return tuple(jobs)


def _read_job(section: Section) -> Job:
    default_start: float | None = Job.start
    job = Job(
        name=section.get("name", _name, "job"),
        bytes=section.get("bytes", _within(parse_bytes, 1, 1 << 50, "bytes")),
        compute=section.get("compute", _within(parse_seconds, 1e-3, 3600.0, "seconds")),
        jitter=section.get("jitter", _within(parse_fraction, 0.0, 1.0, "(0% to 100%)"), 0.0),
        flows=section.get("flows", _whole(1, MAX_FLOWS), 1),
        bursts=section.get("bursts", _whole(1, 1000), 1),
        start=section.get("start", _start, default_start),
        direction=section.get("direction", _choice(DIRECTIONS), "send"),
        straggler=_read_straggler(section.section("straggler", _fields(Straggler))),
        iterations=section.get("iterations", _whole(1), None),
    )
    try:
        job.spec(iterations=1, seed=0)
    except UsageError as error:
        raise section.error(str(error)) from None
    return job


def _read_straggler(section: Section | None) -> Straggler | None:
    if section is None:
        return None
    return Straggler(
        every=section.get("every", _whole(1)),
        factor=section.get("factor", _within(_number, 0.1, 1000.0, "times")),
    )


def _read_arms(top: Section) -> tuple[Arm, ...]:
    section = top.section("arms", None)
    if section is None or not list(section):
        raise top.error(
            "missing; name at least one, for example `arms: {cubic: {cc: cubic}}`.", "arms"
        )
    arms = []
    for name in section:
        if name == ALONE or not _NAME.fullmatch(name):
            raise section.error(
                f"{ALONE!r} is kept for the jobs' lone runs."
                if name == ALONE
                else "an arm's name has letters, digits, `_`, `.` and `-`, 31 at most.",
                name,
            )
        arms.append(_read_arm(name, section))
    return tuple(arms)


def _read_arm(name: str, arms: Section) -> Arm:
    section = arms.section(name, ["cc", "told", *_fields(JobParams)])
    assert section is not None
    cc = section.get("cc", _cc)
    types = typing.get_type_hints(JobParams)
    parameters: dict[str, Any] = {}
    for key in section:
        if key == "cc":
            continue
        if not is_mltcp(cc):
            raise section.error(
                f"{cc} takes no parameters; only congestion controls named mltcp… do.", key
            )
        if key == "told":
            continue
        parameters[key] = section.get(key, _of_type(types[key]))
        try:
            JobParams(**{key: parameters[key]})
        except UsageError as error:
            raise section.error(str(error), key) from None
    return Arm(name, cc, parameters, section.get("told", _yes_no, False))


def _fields(kind: type[Any]) -> list[str]:
    return [field.name for field in dataclasses.fields(kind)]


_TOP_FIELDS = [
    *(name for name in _fields(Experiment) if name != "alone_iterations"),
    ALONE,
]


def _name(value: object) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise UsageError(
            f"{value!r} is not a name; use letters, digits, `_`, `.` and `-`, 31 at most."
        )
    return value


def _cc(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[a-z0-9_]{1,15}", value):
        raise UsageError(f"{value!r} is not the name of a congestion control, like cubic or mltcp.")
    if is_mltcp(value) and value not in ALL_NAMES:
        raise UsageError(f"{value!r} is not one of {', '.join(ALL_NAMES)}.")
    return value


def _start(value: object) -> float | None:
    if value == "random":
        return None
    try:
        return parse_seconds(value)
    except UsageError:
        raise UsageError(f"{value!r} is neither a time like 100ms nor `random`.") from None


def _sysctl_value(value: object) -> str:
    return str(int(value) if isinstance(value, bool) else value)


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UsageError(f"{value!r} is not a number.")
    return float(value)


def _yes_no(value: object) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"{value!r} is neither true nor false.")
    return value


def _whole(least: int, most: int | None = None) -> Callable[[object], Any]:
    def parse(value: object) -> int:
        upper = "" if most is None else f" to {most}"
        if (
            isinstance(value, bool)
            or not isinstance(value, int)
            or value < least
            or (most is not None and value > most)
        ):
            raise UsageError(f"{value!r} is not a whole number from {least}{upper or ' up'}.")
        return value

    return parse


def _within(
    parse: Callable[[object], Any], least: float, most: float, unit: str
) -> Callable[[object], Any]:
    def checked(value: object) -> Any:
        number = parse(value)
        if not least <= number <= most:
            raise UsageError(f"{value!r} is outside {least:.6g} to {most:.6g} {unit}.")
        return number

    return checked


def _choice(values: Collection[str]) -> Callable[[object], Any]:
    def parse(value: object) -> str:
        if value not in values:
            raise UsageError(f"{value!r} is not one of {', '.join(values)}.")
        return str(value)

    return parse


def _words(value: object) -> tuple[str, ...]:
    words = value if isinstance(value, list) else [value]
    if not all(isinstance(word, str) for word in words):
        raise UsageError(f"{value!r} is not a word or a list of words.")
    return tuple(words)


def _of_type(kind: Any) -> Callable[[object], Any]:
    if kind is int:
        return _whole(0)
    if kind is float:
        return _number
    return str if kind is str else _words
