# SPDX-License-Identifier: BSD-2-Clause
"""A periodic job: compute, then communicate, again and again.

Times are seconds, sizes are bytes. A job is fully described by a JobSpec; the same JobSpec gives
the same compute times in every process.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from mltcp_tools.base.errors import UsageError
from mltcp_tools.lab.emulator.compression import LEAST_SHARE, Compression
from mltcp_tools.lab.emulator.patterns import Pattern, sizes, split
from mltcp_tools.lab.emulator.time_shift import TimeShift

Direction = Literal["send", "both"]
DIRECTIONS: tuple[str, ...] = get_args(Direction)

MAX_FLOWS = 512
MAX_BURSTS = 1000
MAX_BYTES = 1 << 40
MIN_SHARE = LEAST_SHARE
# Jitter never shortens a compute phase below this part of its length.
SHORTEST_COMPUTE = 0.05

_CC_NAME = re.compile(r"[A-Za-z0-9_]{1,15}")


@dataclass(frozen=True)
class JobSpec:
    """A periodic job; raises UsageError where a value makes no sense.

    An iteration is `compute_s` seconds of computing and `bytes_per_iteration` bytes on the network,
    both split evenly over `bursts` rounds of compute then burst; a burst is split over `flows`
    connections, evenly or by the weights `weights`. With direction "both", that many bytes go each
    way at the same time.

    `chunk`, with direction "both": each end sends its next so many bytes only when as many have
    arrived since its last ones, as the ends of a ring all-reduce do; bytes.

    `time_shifts`: the first burst of each iteration keeps to these; None: it begins when it is
    ready.

    `pattern`: the job has several ranks, and `bytes_per_iteration` is what `Pattern.tasks` calls
    the size; `flows` connections lead from one rank to another. None: a client that sends to a
    server.

    `compress`: a burst that isn't first is sent smaller; None: never.

    The job ends after `iterations`, or with the first iteration that ends `duration_s` or more
    after the start, whichever comes first. `jitter` is the standard deviation of the compute time
    as a fraction of it. Every `straggler_every`-th iteration computes `straggler_factor` times as
    long. `cc` names the congestion control of the sending sockets (None: the system's default).
    """

    bytes_per_iteration: int
    compute_s: float
    iterations: int | None = None
    duration_s: float | None = None
    jitter: float = 0.0
    seed: int = 1
    flows: int = 1
    bursts: int = 1
    start_delay_s: float = 0.0
    cc: str | None = None
    direction: Direction = "send"
    straggler_every: int | None = None
    straggler_factor: float = 2.0
    weights: tuple[int, ...] | None = None
    chunk: int | None = None
    time_shifts: TimeShift | None = None
    pattern: Pattern | None = None
    compress: Compression | None = None

    def __post_init__(self) -> None:
        _require(1 <= self.flows <= MAX_FLOWS, f"flows must be 1 to {MAX_FLOWS}, not {self.flows}")
        _require(
            1 <= self.bursts <= MAX_BURSTS, f"bursts must be 1 to {MAX_BURSTS}, not {self.bursts}"
        )
        least = MIN_SHARE * self.flows * self.bursts
        _require(
            least <= self.bytes_per_iteration <= MAX_BYTES,
            f"bytes per iteration must be {least} to {MAX_BYTES} for {self.flows} flow(s) and "
            f"{self.bursts} burst(s), not {self.bytes_per_iteration}",
        )
        self._check_flows()
        _require(
            self.iterations is not None or self.duration_s is not None,
            "a job needs a number of iterations or a duration",
        )
        _require(
            self.iterations is None or self.iterations >= 1,
            f"iterations must be 1 or more, not {self.iterations}",
        )
        _require(
            self.duration_s is None or (math.isfinite(self.duration_s) and self.duration_s > 0),
            f"the duration must be more than 0 s, not {self.duration_s}",
        )
        for value, what in (
            (self.compute_s, "compute time"),
            (self.jitter, "jitter"),
            (self.start_delay_s, "start delay"),
        ):
            _require(
                math.isfinite(value) and value >= 0, f"the {what} must be 0 or more, not {value}"
            )
        _require(self.seed >= 0, f"the seed must be 0 or more, not {self.seed}")
        _require(
            self.cc is None or _CC_NAME.fullmatch(self.cc) is not None,
            f"{self.cc!r} can't be a congestion control: names are 1 to 15 letters, digits or _",
        )
        _require(
            self.direction in DIRECTIONS,
            f"the direction is one of {', '.join(DIRECTIONS)}, not {self.direction!r}",
        )
        _require(
            self.straggler_every is None or self.straggler_every >= 1,
            f"stragglers come every 1 or more iterations, not every {self.straggler_every}",
        )
        _require(
            math.isfinite(self.straggler_factor) and self.straggler_factor > 0,
            f"the straggler factor must be more than 0, not {self.straggler_factor}",
        )
        _require(
            self.time_shifts is None or self.time_shifts.period_s >= self.compute_s,
            f"no slot can be shorter than the compute time of {self.compute_s:g} s",
        )
        _require(
            self.compress is None or 0 < self.compress.to < 1,
            "what compressing leaves must be more than none and less than all of a burst",
        )
        self._check_pattern()

    def _check_flows(self) -> None:
        """Check the ways in which flows carry a burst."""
        if self.weights is not None:
            _require(
                len(self.weights) == self.flows and min(self.weights) >= 1,
                f"the split must have {self.flows} weights of 1 or more, one per flow, not "
                f"{', '.join(map(str, self.weights))}",
            )
            share = self.bytes_per_iteration // self.bursts * min(self.weights) // sum(self.weights)
            _require(
                share >= MIN_SHARE,
                f"the smallest share of a burst must be {MIN_SHARE} bytes or more",
            )
        _require(
            self.chunk is None or (self.direction == "both" and MIN_SHARE <= self.chunk < 1 << 32),
            f"a chunk must be {MIN_SHARE} bytes to 4 GB, and the direction both",
        )

    def _check_pattern(self) -> None:
        """Refuse what doesn't go with a pattern."""
        if self.pattern is None:
            return
        plain = self.bursts == 1 and self.direction == "send" and self.iterations is not None
        others = (self.weights, self.chunk, self.time_shifts, self.duration_s)
        _require(
            plain and self.compress is None and all(each is None for each in others),
            f"the pattern {self.pattern.kind} has its own bursts and directions, and a number of"
            " iterations",
        )
        self.pattern.tasks(self.bytes_per_iteration, self.flows)

    @classmethod
    def read(cls, document: object) -> JobSpec:
        """The job of a JSON object that has these fields, as `dataclasses.asdict` gives them.

        Raises UsageError where it has others, or where a value makes no sense.
        """
        if not isinstance(document, dict):
            raise UsageError("Not a possible job: it must be a JSON object.")
        fields = dict(document)
        try:
            if fields.get("time_shifts") is not None:
                fields["time_shifts"] = TimeShift(**fields["time_shifts"])
            if fields.get("pattern") is not None:
                fields["pattern"] = Pattern(**fields["pattern"])
            if fields.get("compress") is not None:
                fields["compress"] = Compression(**fields["compress"])
            if fields.get("weights") is not None:
                fields["weights"] = tuple(fields["weights"])
            return cls(**fields)
        except TypeError as error:
            raise UsageError(f"Not a possible job: {error}.") from error

    def shares(self, burst: int) -> list[int]:
        """Bytes each flow carries (each way) in burst number `burst` of the run, from 1.

        With a pattern, what each connection of its ranks does in an
        iteration (`patterns.connections`).
        """
        if self.pattern is not None:
            return sizes(self.pattern.tasks(self.bytes_per_iteration, self.flows))
        of_burst = split(self.bytes_per_iteration, [1] * self.bursts)[(burst - 1) % self.bursts]
        return split(of_burst, self.weights or [1] * self.flows)


def compute_times(spec: JobSpec) -> Iterator[float]:
    """Seconds of compute of iteration 1, 2, …; ends after `spec.iterations`, if that is set."""
    generator = np.random.default_rng(spec.seed)
    numbers = itertools.count(1) if spec.iterations is None else range(1, spec.iterations + 1)
    return (_compute_time(spec, number, generator) for number in numbers)


def _compute_time(spec: JobSpec, number: int, generator: np.random.Generator) -> float:
    noise = 1.0 + spec.jitter * float(generator.standard_normal())
    seconds = spec.compute_s * max(SHORTEST_COMPUTE, noise)
    if spec.straggler_every is not None and number % spec.straggler_every == 0:
        seconds *= spec.straggler_factor
    return seconds


def _require(condition: bool, complaint: str) -> None:
    if not condition:
        raise UsageError(f"Not a possible job: {complaint}.")
