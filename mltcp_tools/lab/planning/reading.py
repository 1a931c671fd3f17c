# SPDX-License-Identifier: BSD-2-Clause
"""Profiles as YAML files: what people write, and what `mltcp lab profile -o` does.

link: {rate: 50gbit}               # optional: the link that all jobs share
jobs:
  - name: vgg16
    count: 2                       # vgg16-1 and vgg16-2
    period: 255ms
    phases:
      - {start: 114ms, duration: 141ms, rate: 40gbit}
  - name: bert
    period: 150ms
    phases:
      - {start: 90ms, duration: 20ms, bytes: 85MB}
    back:                          # optional: what goes the other way
      - {start: 90ms, duration: 20ms, bytes: 85MB}
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import yaml

from mltcp_tools.base.document import Section, read_section
from mltcp_tools.base.errors import UsageError
from mltcp_tools.base.units import parse_bytes, parse_rate, parse_seconds
from mltcp_tools.base.values import whole
from mltcp_tools.lab.planning.profile import Phase, Profile, require_jobs

MAX_COUNT = 10_000
JOB_FIELDS = ("name", "count", "period", "phases", "back")
_PHASE_FIELDS = ("start", "duration", "rate", "bytes")


def read_source(path: Path, variant: str | None = None) -> tuple[list[Profile], float | None]:
    """The profiles in a run folder or a YAML file, and the rate of their link in bit/s, if known.

    variant: of the run, see `profiles_of_run`.
    """
    if path.is_dir():
        # pandas, which a YAML file does not need
        from mltcp_tools.lab.planning.from_run import profiles_of_run
        from mltcp_tools.lab.runs.run import load_run

        run = load_run(path)
        rate = run.experiment.rate_bps
        return profiles_of_run(run, variant), None if rate is None else float(rate)
    if variant is not None:
        raise UsageError(
            f"{path} is not a run folder, so it has no variant {variant!r}; leave out --variant."
        )
    return parse_profiles(read_text(path), str(path))


def read_text(path: Path) -> str:
    """Text of a file in UTF-8, with or without the mark that spreadsheets write before it; raises
    UsageError where it can't be read."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise UsageError(
            f"{path} isn't UTF-8 text; convert it, for example with `iconv -f latin1 -t utf-8`."
        ) from None


def parse_profiles(text: str, file: str) -> tuple[list[Profile], float | None]:
    """Profiles and the link's rate from YAML `text`; `file` is its name for messages."""
    top = read_section(text, file, ["link", "jobs"])
    link = top.section("link", ["rate"])
    rate = None if link is None else positive_rate(link, "rate")
    return list(require_jobs(read_jobs(top))), rate


def positive_rate(section: Section, key: str) -> float:
    """A rate in bit/s that isn't zero."""
    rate = float(section.get(key, parse_rate))
    if rate <= 0:
        raise section.error("must be more than 0.", key)
    return rate


def read_jobs(top: Section) -> list[Profile]:
    """The profiles under `jobs`, those that `count` makes among them."""
    profiles = []
    for section in top.sections("jobs", JOB_FIELDS):
        name = section.get("name", job_name)
        period_s = section.get("period", parse_seconds)
        back = _read_phases(section, "back", needed=False)
        phases = _read_phases(section, "phases", needed=not back)
        count = section.get("count", whole(1, MAX_COUNT), 1)
        names = [name] if count == 1 else [f"{name}-{number}" for number in range(1, count + 1)]
        with section.complaints():
            profiles += [Profile(each, period_s, phases, back) for each in names]
    return profiles


def job_name(value: object) -> str:
    """A name that fits in a table."""
    name = str(value)
    if not (0 < len(name) <= 60 and name.isprintable()):
        raise UsageError("must be 1 to 60 printable characters.")
    return name


def _read_phases(job: Section, field: str, needed: bool) -> tuple[Phase, ...]:
    if not needed and field not in set(job):
        return ()
    phases = []
    for section in job.sections(field, _PHASE_FIELDS):
        start_s = section.get("start", parse_seconds)
        duration_s = section.get("duration", parse_seconds)
        if duration_s <= 0:
            raise section.error("must be more than 0.", "duration")
        if ("rate" in set(section)) == ("bytes" in set(section)):
            raise section.error("needs either a rate or bytes.")
        if "rate" in set(section):
            rate = float(section.get("rate", parse_rate))
        else:
            rate = section.get("bytes", parse_bytes) * 8 / duration_s
        phases.append(Phase(start_s, duration_s, rate))
    return tuple(sorted(phases, key=lambda phase: phase.start_s))


def write_profiles(profiles: Sequence[Profile], rate_bps: float | None) -> str:
    """Profiles as YAML that `parse_profiles` reads, to a nanosecond and a bit per second."""
    document: dict[str, object] = {}
    if rate_bps is not None:
        document["link"] = {"rate": f"{rate_bps:.0f}bit"}
    document["jobs"] = [
        {
            "name": profile.name,
            "period": _milliseconds(profile.period_s),
            **{
                field: [_phase(phase) for phase in phases]
                for field, phases in (("phases", profile.phases), ("back", profile.back))
                if phases
            },
        }
        for profile in profiles
    ]
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100)


def _phase(phase: Phase) -> dict[str, str]:
    return {
        "start": _milliseconds(phase.start_s),
        "duration": _milliseconds(phase.duration_s),
        "rate": f"{phase.rate_bps:.0f}bit",
    }


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.6f}ms"
