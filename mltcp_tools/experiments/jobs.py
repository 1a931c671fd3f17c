"""The jobs of an experiment."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from mltcp_tools.emulator.compression import Compression
from mltcp_tools.emulator.job import Direction, JobSpec
from mltcp_tools.emulator.patterns import Pattern


@dataclass(frozen=True)
class Straggler:
    """Every `every`-th iteration computes `factor` times as long."""

    every: int
    factor: float


@dataclass(frozen=True)
class Compress:
    """In arms with priorities, a burst that isn't first is sent as the share `to` of its bytes.
    `cost`: seconds that this takes; None: emulator/compression.py."""

    to: float
    cost: float | None


@dataclass(frozen=True)
class ExperimentJob:
    """One periodic job. `bytes` per iteration, `compute` and `start` in seconds (None: random),
    `rate` in bit/s, `links` the names of those it crosses where there are several. `hosts`: those
    of the fabric where its ranks run, which communicate in a `pattern` of so many `pieces`."""

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
    active: int | None = None
    chunk: int | None = None
    rate: int | None = None
    links: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    pattern: str | None = None
    pieces: int = 1
    compress: Compress | None = None

    @property
    def uneven(self) -> bool:
        """Whether its flows don't all carry the same in every burst."""
        return self.split is not None or self.active is not None

    def demand(self) -> tuple[Any, ...]:
        """Everything that shapes the job's iterations alone on a link: equal for equal jobs."""
        return dataclasses.astuple(dataclasses.replace(self, name="", start=None, iterations=None))

    def spec(
        self, *, iterations: int, seed: int, start_delay: float = 0.0, cc: str | None = None
    ) -> JobSpec:
        """The job as the emulator runs it."""
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
            active=self.active,
            chunk=self.chunk,
            rate_bps=self.rate,
            pattern=Pattern(self.pattern, len(self.hosts), self.pieces) if self.pattern else None,
            compress=Compression(self.compress.to, self.compress.cost) if self.compress else None,
        )
