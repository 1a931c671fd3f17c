# SPDX-License-Identifier: BSD-2-Clause
"""The jobs of an experiment: every field of one is declared here (fields.py)."""

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
    parse_rate,
    parse_seconds,
)
from mltcp_tools.lab.emulator.compression import Compression
from mltcp_tools.lab.emulator.job import (
    DIRECTIONS,
    MAX_BURSTS,
    MAX_FLOWS,
    MIN_RATE_BPS,
    MIN_SHARE,
    Direction,
    JobSpec,
)
from mltcp_tools.lab.emulator.patterns import KINDS, MAX_PIECES, Pattern, connections
from mltcp_tools.lab.experiments.fields import declared, mapping, names, read_fields

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

    every: int = declared(
        values.whole(1),
        "number",
        "Every so many-th iteration is slow.",
        simulated=True,
        option=True,
    )
    factor: float = declared(
        values.within(values.number, 0.1, 1000.0, "times"),
        "number",
        "A slow one computes so many times as long.",
        default=2.0,
        simulated=True,
        option=True,
    )


@dataclass(frozen=True)
class Compress:
    """In variants with priorities, a burst that isn't first is sent as a share of its bytes."""

    to: float = declared(
        values.within(parse_fraction, 0.001, 0.999, "(0.1% to 99.9%)"),
        "share",
        "The share of the bytes that is left.",
        default=0.25,
        simulated=True,
    )
    cost: float | None = declared(
        _SECONDS,
        "time",
        "Time that compressing takes; without it, as long as at 44.5 GB/s.",
        default=None,
        write=exact_seconds,
        simulated=True,
    )


@dataclass(frozen=True)
class ExperimentJob:
    """One periodic job; sizes are bytes, times seconds and rates bit/s. A `start` of None is drawn
    anew in every repetition."""

    name: str = declared(
        values.name,
        "name",
        "Its name; where `count` makes several of it, `name-1`, `name-2`, …",
        missing="job",
        simulated=True,
    )
    bytes: int = declared(
        values.within(parse_bytes, 1, 1 << 50, "bytes"),
        "size",
        "Bytes per iteration, such as 2.5MB.",
        write=exact_bytes,
        simulated=True,
        option=True,
    )
    compute: float = declared(
        _SECONDS,
        "time",
        "Compute time per iteration, such as 340ms.",
        write=exact_seconds,
        simulated=True,
        option=True,
    )
    jitter: float = declared(
        values.within(parse_fraction, 0.0, 1.0, "(0% to 100%)"),
        "share",
        "Standard deviation of the compute time, such as 5%.",
        default=0.0,
        simulated=True,
        option=True,
    )
    flows: int = declared(
        values.whole(1, MAX_FLOWS),
        "number",
        "Connections that each burst is split over.",
        default=1,
        simulated=True,
        option=True,
    )
    bursts: int = declared(
        values.whole(1, MAX_BURSTS),
        "number",
        "Rounds of compute and burst that each iteration is split into.",
        default=1,
        simulated=True,
        option=True,
    )
    start: float | None = declared(
        _start,
        "time",
        "Wait before the first iteration; in experiments also `random`: drawn in every repetition,"
        " at most as long as an iteration alone.",
        default=0.0,
        write=exact_seconds,
        simulated=True,
        option=True,
    )
    direction: Direction = declared(
        values.choice(DIRECTIONS),
        "way",
        "The bytes' way, seen from the job: send, receive, or both, all of them each way.",
        default="send",
        words=DIRECTIONS,
        simulated=True,
        option=True,
    )
    straggler: Straggler | None = mapping(
        Straggler, "Iterations that compute longer.", simulated=True, option=True
    )
    iterations: int | None = declared(
        values.whole(1),
        "number",
        "The number that it runs, where that isn't the experiment's.",
        default=None,
        simulated=True,
    )
    split: tuple[int, ...] | None = declared(
        values.weights,
        "numbers",
        "Split a burst in proportion to these weights, one per connection, not evenly.",
        default=None,
        simulated=True,
        option=True,
        several=True,
    )
    active: int | None = declared(
        values.whole(1, MAX_FLOWS),
        "number",
        "So many connections carry a burst, in turn; the others idle.",
        default=None,
        simulated=True,
        option=True,
    )
    chunk: int | None = declared(
        values.within(parse_bytes, MIN_SHARE, 1 << 30, "bytes"),
        "size",
        "Send this much at a time, the next once as much has arrived; with the direction both.",
        default=None,
        write=exact_bytes,
        simulated=True,
        option=True,
    )
    rate: int | None = declared(
        values.within(parse_rate, MIN_RATE_BPS, 30_000_000_000, "bit/s"),
        "rate",
        "Hand over no more than this while sending.",
        default=None,
        write=lambda rate: f"{rate}bit",
        option=True,
    )
    links: tuple[str, ...] = declared(
        values.words,
        "names",
        "Those it crosses, where there are several.",
        default=(),
        simulated=True,
    )
    hosts: tuple[str, ...] = declared(
        values.words,
        "names",
        "The hosts of the fabric where its ranks run.",
        default=(),
        simulated=True,
    )
    pattern: str | None = declared(
        values.choice(KINDS),
        "word",
        f"Communication of its ranks: {', '.join(KINDS)}.",
        default=None,
        simulated=True,
    )
    pieces: int = declared(
        values.whole(1, MAX_PIECES),
        "number",
        "Parts of an iteration's bytes that ranks pass on one by one; with a `pattern`.",
        default=1,
        simulated=True,
        needs="pattern",
    )
    compress: Compress | None = mapping(
        Compress,
        "In variants with the treatment `priorities`, a burst that is ready while another job's is"
        " under way is sent smaller.",
        simulated=True,
    )

    @property
    def uneven(self) -> bool:
        """Return whether its flows don't all carry the same in every burst."""
        return self.split is not None or self.active is not None

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
        return self.connections or min(self.flows, self.active or self.flows)

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
        duration_s: float | None = None,
    ) -> JobSpec:
        """The job as the emulator runs it; raises UsageError where that makes no sense."""
        return JobSpec(
            bytes_per_iteration=self.bytes,
            compute_s=self.compute,
            iterations=iterations,
            duration_s=duration_s,
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
            active=self.active,
            chunk=self.chunk,
            rate_bps=self.rate,
            pattern=Pattern(self.pattern, len(self.hosts), self.pieces) if self.pattern else None,
            compress=Compression(self.compress.to, self.compress.cost) if self.compress else None,
        )


def read_job(section: Section) -> ExperimentJob:
    """The job of a file's mapping, which may also say `count`; raises UsageError."""
    job = ExperimentJob(**read_fields(section, ExperimentJob))
    with section.complaints():
        job.spec(iterations=1, seed=0)
    return job


JOB_FIELDS = [*names(ExperimentJob), "count"]
"""The fields that a job's mapping may have."""
