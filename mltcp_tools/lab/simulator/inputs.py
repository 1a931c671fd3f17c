# SPDX-License-Identifier: BSD-2-Clause
"""The inputs of a simulation: links, their priorities, and jobs with what each of them sends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mltcp_tools.lab.emulator.patterns import RankTask
from mltcp_tools.lab.emulator.time_shift import TimeShift

MSS = 1448
"""Payload of a full segment over Ethernet with a MTU of 1500, bytes: IPv4, TCP, timestamps."""

WINDOW = 4096
"""Segments in flight at most: about what the kernel's default buffers of 6 MB hold."""

RTO_MIN_S = 0.2
"""The kernel's shortest timeout (TCP_RTO_MIN), unless net.ipv4.tcp_rto_min_us says another."""


@dataclass(frozen=True)
class SimulatedLink:
    """One direction of a link.

    rate: bit/s on the wire. queue: bytes on the wire. rtt: seconds that the link adds to an empty
    round trip, half of them on the way ahead. loss: share of segments lost at random. marks: bytes
    of the queue from which on a segment may be marked, and from which on it is (RFC 3168); None:
    none is. bucket: bytes on the wire that pass at once after idle time, a token bucket's; 0 on a
    real link.
    """

    rate: float
    queue: int
    rtt: float
    loss: float = 0.0
    marks: tuple[int, int] | None = None
    bucket: int = 0


@dataclass(frozen=True)
class PriorityQueues:
    """Levels of strict priority that bursts get by their order, each with a queue of its own at a
    link.

    weight: number of the weights by which bursts are ordered (enum sim_weight). floor: share of a
    link that each level is sure of. control: seconds until levels follow a burst's beginning or
    end.
    """

    weight: int = 0
    floor: float = 0.0
    control: float = 0.0


Route = tuple[tuple[int, ...], tuple[int, ...]]
"""Numbers of the links that a flow's segments cross, in order, and its ACKs."""


@dataclass(frozen=True)
class Program:
    """The work of a job's `ranks` ranks in an iteration, see emulator/patterns.py.

    hosts: numbers of the hosts that the ranks are on, the same for all jobs. paths: of each of the
    tasks' connections, in the order in which these are first used.
    """

    ranks: int
    tasks: Sequence[RankTask]
    paths: Sequence[Route]
    hosts: Sequence[int]


@dataclass(frozen=True)
class PacketJob:
    """One periodic job.

    start: seconds until its first iteration. compute: seconds of each iteration, shared equally by
    its `bursts`. bytes: of each burst, what each flow sends. params: fields of struct mltcp_params,
    with mechanisms of their own; None for the plain base. rate: fields of struct mltcp_rate_params,
    where windows follow the network's feedback. base: "reno", "dctcp" or "cubic". ahead, back:
    numbers of the links that segments and ACKs cross, in order; where none is named back, ACKs
    don't wait. both: as many bytes come back at the same time, by flows numbered behind the others;
    with `chunk`, each end sends so many bytes only when as many have come. program: what its ranks
    do, in place of `bytes`, `ahead` and `back`; an iteration is then one burst. compressed: where
    there are priorities, what each flow sends of a burst that isn't first. compress: the seconds
    that this takes, of each burst. time_shifts: those that its iterations keep to, of which the
    first is due at `due` seconds. trace: seconds between samples of its flows, 0 where all jobs
    have the same. neighbour: nobody waits for its end, and it has the last of the priorities.
    """

    start: float
    compute: Sequence[float]
    bytes: Sequence[Sequence[int]]
    bursts: int = 1
    params: dict[str, int] | None = None
    rate: dict[str, int] | None = None
    base: str = "reno"
    ahead: tuple[int, ...] = (0,)
    back: tuple[int, ...] = ()
    both: bool = False
    chunk: int = 0
    program: Program | None = None
    compressed: Sequence[Sequence[int]] | None = None
    compress: Sequence[float] = ()
    time_shifts: TimeShift | None = None
    due: float = 0.0
    trace: float = 0.0
    neighbour: bool = False

    @property
    def flows(self) -> int:
        """Return the number of flows that carry bytes of their own one way."""
        return len(self.program.paths if self.program else self.bytes[0])

    @property
    def burst_count(self) -> int:
        """Bursts of all its iterations."""
        return len(self.compute) * self.bursts

    @property
    def hosts(self) -> Sequence[int]:
        """Numbers of the hosts that its ranks are on; none without a program."""
        return self.program.hosts if self.program else ()

    @property
    def paths(self) -> Sequence[Route]:
        """The paths that its flows take."""
        return self.program.paths if self.program else [(self.ahead, self.back)]
