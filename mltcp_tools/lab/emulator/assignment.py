# SPDX-License-Identifier: BSD-2-Clause
"""The message that a parent sends to a rank of a job with a pattern."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mltcp_tools.base.errors import UsageError
from mltcp_tools.lab.emulator.job import JobSpec


@dataclass(frozen=True)
class Route:
    """One of a rank's connections: from an address here to one of the peer's."""

    source: str
    destination: str
    port: int


@dataclass(frozen=True)
class Assignment:
    """The assignment of a rank by its parent (control.py): the job, which of its ranks it is, the
    port that it listens on, and the route of each connection that begins at it, by its number.
    """

    name: str
    spec: JobSpec
    trace_s: float | None
    rank: int
    port: int
    routes: dict[int, Route]

    @classmethod
    def read(cls, message: dict[str, Any]) -> Assignment:
        """From a message's fields. Raises UsageError."""
        try:
            routes = {int(key): Route(**each) for key, each in message["routes"].items()}
            trace_s = message["trace_s"]
            spec = JobSpec.read(message["spec"])
            found = cls(
                str(message["name"]),
                spec,
                None if trace_s is None else float(trace_s),
                int(message["rank"]),
                int(message["port"]),
                routes,
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UsageError(f"Not a possible rank: {error!r} in what the parent sent.") from error
        if spec.pattern is None or not 0 <= found.rank < spec.pattern.ranks:
            raise UsageError(f"Not a possible rank: number {found.rank} of {spec.pattern}.")
        return found
