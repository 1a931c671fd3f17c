# SPDX-License-Identifier: BSD-2-Clause
"""Coflow traces in the format of coflow-benchmark.

    150 526                        ports, coflows
    1 0 2 22 23 1 65:1.0           id, arrival in ms, mappers and where they are, reducers and
                                   where they are : MB that each receives, in all

Every reducer receives an equal share from every mapper, so a coflow is all pairs of the two. Ports
are numbered from 0 or from 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from mltcp_tools.base.errors import UsageError
from mltcp_tools.lab.planning.reading import read_text

Port = tuple[str, int]
_MB = 1e6
_MS = 1e-3


@dataclass(frozen=True)
class Coflow:
    """All flows from `mappers` to `reducers`.

    name: the id in the trace. arrival_s: seconds from the start of the trace.
    mappers: ingress ports; one with two mappers stands there twice.
    reducers: (egress port, bytes that it receives in all from the mappers).
    """

    name: int
    arrival_s: float
    mappers: tuple[int, ...]
    reducers: tuple[tuple[int, float], ...]

    def flows(self) -> Iterator[tuple[int, int, float]]:
        """(ingress, egress, bytes) of each."""
        for egress, size in self.reducers:
            for ingress in self.mappers:
                yield ingress, egress, size / len(self.mappers)

    @cached_property
    def demand(self) -> dict[Port, float]:
        """Bytes per port, ("ingress", number) or ("egress", number)."""
        demand: dict[Port, float] = {}
        total = sum(size for _, size in self.reducers)
        for ingress in self.mappers:
            port = ("ingress", ingress)
            demand[port] = demand.get(port, 0.0) + total / len(self.mappers)
        for egress, size in self.reducers:
            demand["egress", egress] = demand.get(("egress", egress), 0.0) + size
        return demand


@dataclass(frozen=True)
class Trace:
    """Coflows in the order of the file, on a switch of so many ports, numbered from 0."""

    ports: int
    coflows: tuple[Coflow, ...]


def read_trace(path: Path) -> Trace:
    """A trace from a file; a UsageError names file and line."""
    lines = [
        (number, line.split())
        for number, line in enumerate(read_text(path).splitlines(), start=1)
        if line.strip()
    ]
    if not lines:
        raise UsageError(f"{path} is empty; it should be a coflow-benchmark trace.")
    try:
        ports, count = (int(word) for word in lines[0][1])
    except ValueError:
        raise UsageError(
            f"{path}, line 1: should be the number of ports and that of coflows, like `150 526`."
        ) from None
    if ports < 1:
        raise UsageError(f"{path}, line 1: a switch has at least one port.")
    if len(lines) - 1 != count:
        raise UsageError(f"{path}: line 1 announces {count} coflows, {len(lines) - 1} follow.")
    coflows = [_coflow(words, f"{path}, line {number}") for number, words in lines[1:]]
    _require_unique(coflows, path)
    return Trace(ports, tuple(_numbered(coflows, ports, path)))


def _coflow(words: list[str], where: str) -> Coflow:
    try:
        name, arrival_ms, mappers = int(words[0]), float(words[1]), int(words[2])
        reducers = int(words[3 + mappers])
        places = tuple(int(word) for word in words[3 : 3 + mappers])
        received = tuple(
            (int(place), float(size) * _MB)
            for place, size in (word.split(":") for word in words[4 + mappers :])
        )
        if mappers < 1 or len(received) != reducers or reducers < 1:
            raise ValueError
        if not all(0 <= size < float("inf") for _, size in received):
            raise ValueError
        if not 0 <= arrival_ms < float("inf"):
            raise ValueError
    except (ValueError, IndexError):
        raise UsageError(
            f"{where}: should be id, arrival in ms, number of mappers, their ports, number of"
            " reducers, and port:MB of each, like `1 0 2 22 23 1 65:1.0`."
        ) from None
    return Coflow(name, arrival_ms * _MS, places, received)


def _require_unique(coflows: list[Coflow], path: Path) -> None:
    seen: set[int] = set()
    for coflow in coflows:
        if coflow.name in seen:
            raise UsageError(
                f"{path}: two coflows have the id {coflow.name}; give them different ids."
            )
        seen.add(coflow.name)


def _numbered(coflows: list[Coflow], ports: int, path: Path) -> Iterator[Coflow]:
    """The coflows with ports from 0 on: some traces of the format count from 1."""
    used = {port for c in coflows for port in (*c.mappers, *(port for port, _ in c.reducers))}
    first = 1 if ports in used and 0 not in used else 0
    if used and not (first <= min(used) and max(used) < ports + first):
        raise UsageError(
            f"{path}: ports go from {min(used)} to {max(used)}, but line 1 announces {ports}."
        )
    for c in coflows:
        yield Coflow(
            c.name,
            c.arrival_s,
            tuple(port - first for port in c.mappers),
            tuple((port - first, size) for port, size in c.reducers),
        )
