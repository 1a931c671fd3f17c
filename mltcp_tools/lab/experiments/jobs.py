# SPDX-License-Identifier: BSD-2-Clause
"""The jobs of an experiment: what they are, reading them from its file, and writing them there."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from mltcp_tools.base import values
from mltcp_tools.base.document import Section
from mltcp_tools.base.errors import UsageError
from mltcp_tools.base.units import (
    exact_bytes,
    exact_seconds,
    parse_bytes,
    parse_fraction,
    parse_seconds,
)
from mltcp_tools.lab.emulator.compression import Compression
from mltcp_tools.lab.emulator.job import (
    DIRECTIONS,
    MAX_BURSTS,
    MAX_FLOWS,
    MIN_SHARE,
    Direction,
    JobSpec,
)
from mltcp_tools.lab.emulator.patterns import KINDS, MAX_PIECES, Pattern, connections

_SECONDS = values.within(parse_seconds, 0.0, 3600.0, "seconds")


def _start(value: object) -> float | None:
    if value == "random":
        return None
    try:
        return parse_seconds(value)
    except UsageError:
        raise UsageError(f"{value!r} is neither a time like 100ms nor `random`.") from None


@dataclass(frozen=True)
class Straggler:
    """Every `every`-th iteration computes `factor` times as long."""

    every: int
    factor: float = 2.0


@dataclass(frozen=True)
class ExperimentJob:
    """One periodic job; the README beside this file says what each field means.

    Sizes are bytes and times seconds. A `start` of None is drawn anew in every repetition.
    """

    name: str
    bytes: int
    compute: float
    jitter: float = 0.0
    flows: int = 1
    bursts: int = 1
    start: float | None = 0.0
    direction: Direction = "send"
    straggler: Straggler | None = None
    iterations: int | None = None
    split: tuple[int, ...] | None = None
    chunk: int | None = None
    links: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    pattern: str | None = None
    pieces: int = 1
    compress: Compression | None = None

    @property
    def connections(self) -> int | None:
        """Return the number of its ranks' connections; None without a pattern."""
        if self.pattern is None:
            return None
        pattern = Pattern(self.pattern, len(self.hosts), self.pieces)
        return len(connections(pattern.tasks(self.bytes, self.flows)))

    @property
    def carrying(self) -> int:
        """Return the number of its flows that carry a burst."""
        return self.connections or self.flows

    def demand(self) -> tuple[Any, ...]:
        """Everything that shapes the job's iterations alone on a link: equal for equal jobs."""
        return dataclasses.astuple(dataclasses.replace(self, name="", start=None, iterations=None))

    def spec(
        self,
        *,
        iterations: int | None,
        seed: int,
        start_delay: float = 0.0,
        cc: str | None = None,
    ) -> JobSpec:
        """The job as the emulator runs it; raises UsageError where that makes no sense."""
        return JobSpec(
            bytes_per_iteration=self.bytes,
            compute_s=self.compute,
            iterations=iterations,
            jitter=self.jitter,
            seed=seed,
            flows=self.flows,
            bursts=self.bursts,
            start_delay_s=start_delay,
            cc=cc,
            direction=self.direction,
            straggler_every=self.straggler.every if self.straggler else None,
            straggler_factor=self.straggler.factor if self.straggler else 1.0,
            weights=self.split,
            chunk=self.chunk,
            pattern=Pattern(self.pattern, len(self.hosts), self.pieces) if self.pattern else None,
            compress=self.compress,
        )


JOB_FIELDS = [*(field.name for field in dataclasses.fields(ExperimentJob)), "count"]
"""The fields that a job's mapping may have."""


def read_job(section: Section) -> ExperimentJob:
    """The job of a file's mapping, which may also say `count`; raises UsageError."""
    at_once: float | None = 0.0
    job = ExperimentJob(
        name=section.get("name", values.name, "job"),
        bytes=section.get("bytes", values.within(parse_bytes, 1, 1 << 50, "bytes")),
        compute=section.get("compute", _SECONDS),
        jitter=section.get("jitter", values.within(parse_fraction, 0.0, 1.0, "(0% to 100%)"), 0.0),
        flows=section.get("flows", values.whole(1, MAX_FLOWS), 1),
        bursts=section.get("bursts", values.whole(1, MAX_BURSTS), 1),
        start=section.get("start", _start, at_once),
        direction=section.get("direction", values.choice(DIRECTIONS), "send"),
        straggler=_read_straggler(section.section("straggler", ["every", "factor"])),
        iterations=section.get("iterations", values.whole(1), None),
        split=section.get("split", values.weights, None),
        chunk=section.get("chunk", values.within(parse_bytes, MIN_SHARE, 1 << 30, "bytes"), None),
        links=section.get("links", values.words, ()),
        hosts=section.get("hosts", values.words, ()),
        pattern=section.get("pattern", values.choice(KINDS), None),
        pieces=section.get("pieces", values.whole(1, MAX_PIECES), 1),
        compress=_read_compress(section.section("compress", ["to", "cost"])),
    )
    if job.pattern is None and "pieces" in section:
        raise section.error("belongs to a `pattern`; give that, too.", "pieces")
    with section.complaints():
        job.spec(iterations=1, seed=0)
    return job


def _read_straggler(section: Section | None) -> Straggler | None:
    if section is None:
        return None
    factor = values.within(values.number, 0.1, 1000.0, "times")
    return Straggler(section.get("every", values.whole(1)), section.get("factor", factor, 2.0))


def _read_compress(section: Section | None) -> Compression | None:
    if section is None:
        return None
    to = values.within(parse_fraction, 0.001, 0.999, "(0.1% to 99.9%)")
    return Compression(section.get("to", to, 0.25), section.get("cost", _SECONDS, None))


def job_document(job: ExperimentJob) -> dict[str, Any]:
    """The job as in a file, defaults filled in."""
    document = dataclasses.asdict(job) | {
        "bytes": exact_bytes(job.bytes),
        "compute": exact_seconds(job.compute),
        "start": "random" if job.start is None else exact_seconds(job.start),
        "chunk": None if job.chunk is None else exact_bytes(job.chunk),
        "pieces": job.pieces if job.pattern else None,
    }
    if job.compress is not None:
        cost_s = job.compress.cost_s
        cost = None if cost_s is None else exact_seconds(cost_s)
        document["compress"] = {"to": job.compress.to, "cost": cost}
    return present(document)


def present(document: dict[str, Any]) -> dict[str, Any]:
    """A document without fields that say nothing, at any depth."""
    return {
        key: present(value) if isinstance(value, dict) else value
        for key, value in document.items()
        if value is not None and value != ()
    }
