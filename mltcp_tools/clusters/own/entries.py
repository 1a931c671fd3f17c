# SPDX-License-Identifier: BSD-2-Clause
"""Entries of logs: jobs as they were logged, and fields with their places."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from mltcp_tools.base.errors import UsageError

_NONE = {"", "-", "n/a", "nan", "nat", "none", "none assigned", "null", "unknown"}
"""Words of Slurm, Python and spreadsheets for an unknown value."""
_LAST_S = 1e11
"""Larger numbers of seconds since 1970 are milliseconds."""


@dataclass(frozen=True)
class LoggedJob:
    """A job that ran to its end; seconds since some instant.

    gpus: not whole for parts of a GPU. placement: GPUs on each node, empty if unknown. iterations:
    None where the log doesn't say. idle_s: seconds between start and end without GPUs. earlier_s:
    seconds with GPUs before the start. id: of Slurm, "" for others. lacks: what the log doesn't say
    of it, as a clause.
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
    earlier_s: float = 0.0
    id: str = ""
    lacks: str = ""

    @property
    def took_s(self) -> float:
        """Seconds for which it held its GPUs."""
        return self.end_s - self.start_s - self.idle_s

    @property
    def gpu_hours(self) -> float:
        """Return the GPU hours that it held."""
        return self.gpus * self.took_s / 3600


class LeftOutError(Exception):
    """A job that didn't run on GPUs from a start to an end; the reason."""


Reader = Callable[[], LoggedJob]


Clock = dict[str, str]
"""Shared by a log's rows: of which kind its first time is."""


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

    def count(self, name: str, least: int = 0) -> int:
        """Return a whole number of that or more."""
        text = self.text(name)
        # Data frames write whole numbers as 8.0 where some are missing.
        if not re.fullmatch(r"[0-9]{1,9}(\.0*)?", text) or int(float(text)) < least:
            raise self.error(name, f"must be a whole number of {least} or more, not {text!r}")
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
        # Some exports give a running job its time limit as its end; a day is for time zones.
        if ended_s > time.time() + 86_400:
            raise LeftOutError("that ends in the future, as a running job's time limit")
        return submitted_s, started_s, ended_s

    def time(self, name: str) -> float:
        """Return an instant in seconds since 1970, or since that from which the log counts."""
        text, kind = self.text(name), "in seconds"
        try:
            value = float(text)
        except ValueError:
            try:
                at = datetime.fromisoformat(text.replace("Z", "+00:00"))
            except ValueError:
                said = f"{text!r} is no time; write it as 2026-03-01T10:00:00, or in seconds"
                raise self.error(name, said) from None
            kind = "with a zone" if at.tzinfo else "without a zone"
            value = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
        if not abs(value) < _LAST_S:
            raise self.error(name, f"{text!r} is no time in seconds; divide milliseconds by 1000")
        if kind != (first := self._clock.setdefault("kind", kind)):
            raise self.error(name, f"is {kind}, and the log's first time {first}; use one format")
        return value

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
        return LoggedJob(self.text(name), *times, round(gpus, 6), placement)


def equally(gpus: int, nodes: Sequence[str]) -> dict[str, int]:
    """The GPUs on each node; where they can't be equal, the first nodes have one more."""
    each, more = divmod(gpus, len(nodes)) if nodes else (0, 0)
    return {node: each + (number < more) for number, node in enumerate(nodes)}
