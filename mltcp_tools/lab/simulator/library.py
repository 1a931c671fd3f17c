# SPDX-License-Identifier: BSD-2-Clause
"""The simulator (simulator.h and the C files beside it) called from Python, through cffi."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mltcp_tools.base.errors import MltcpError
from mltcp_tools.kernel.native import rate, uapi
from mltcp_tools.kernel.native.extension import declarations, extension
from mltcp_tools.lab.simulator.described import Described, nanoseconds
from mltcp_tools.lab.simulator.inputs import (
    MSS,
    RTO_MIN_S,
    WINDOW,
    PacketJob,
    PriorityQueues,
    SimulatedLink,
)
from mltcp_tools.live.priorities.coflows import LEVELS

Structs = npt.NDArray[Any]


@functools.cache
def _library() -> tuple[Any, Any]:
    folder = Path(__file__).resolve().parent
    declared = declarations(folder / "simulator.h") + "#define SIM_COMPUTES ...\n"
    structs = uapi.STRUCTS + rate.STRUCTS
    return extension("simulator", structs + declared, '#include "simulator.h"\n', folder)


@dataclass(frozen=True)
class SimulationResult:
    """The outcome of a simulation: the structs of simulator.h as arrays with their fields.

    bursts: of each job, all of its bursts in order; `end_ns` is 0 of neighbours' that didn't end.
    """

    bursts: list[Structs]
    samples: Structs
    events: Structs
    counters: dict[str, int]


class StopFlag:
    """Ends simulations early, from another thread."""

    def __init__(self) -> None:
        _, ffi = _library()
        self.flag: Any = ffi.new("uint32_t *", 0)

    def set(self) -> None:
        """Have those that were given this raise Stopped, now or when they begin."""
        self.flag[0] = 1


class SimulationStopped(MltcpError):
    """A simulation was stopped before its jobs were done."""


def simulate(
    links: SimulatedLink | Sequence[SimulatedLink],
    jobs: Sequence[PacketJob],
    *,
    seed: int,
    trace: float = 0.0,
    slow_start_after_idle: bool = True,
    rto_min: float = RTO_MIN_S,
    mss: int = MSS,
    join: float = 0.0,
    coalescing: float = 0.0,
    priorities: PriorityQueues | None = None,
    stop: StopFlag | None = None,
) -> SimulationResult:
    """Run the jobs until all but neighbours are done; the same arguments give the same result.

    seed: of random losses and of the hosts' jitter, below 2^64. trace: seconds between samples of
    sending flows of jobs that don't say it, 0 for none. rto_min: shortest timeout, seconds.
    mss: payload of a full segment, bytes. join: seconds within which receivers join segments, so
    that one ACK serves them all (GRO), 0 for none. coalescing: the longest interrupt
    coalescing of hosts, seconds. priorities: None: one queue for all at each link. Other threads
    run meanwhile. Raises Stopped when `stop` is set, and HostError without a C compiler.
    """
    links = [links] if isinstance(links, SimulatedLink) else links
    for job in jobs:
        for ahead, back in job.paths:
            if not ahead or not all(0 <= n < len(links) for n in (*ahead, *back)):
                raise ValueError(f"a job crosses {ahead} and {back} of {len(links)} links")
        if (job.both and not job.back) or (job.chunk and not job.both):
            raise ValueError("a job that sends both ways needs links back, and one with chunks too")
    stop = stop or StopFlag()
    lib, ffi = _library()
    described = Described(lib, ffi)
    found = lib.sim_run(
        described.links(links),
        len(links),
        described.jobs(jobs, trace),
        len(jobs),
        ffi.new(
            "struct sim_options *",
            {
                "seed": seed,
                "slow_start_after_idle": slow_start_after_idle,
                "rto_min_ns": nanoseconds(rto_min),
                "mss": mss,
                "window": _window(links, jobs, mss),
                "join_ns": nanoseconds(join),
                "coalescing_ns": nanoseconds(coalescing),
                "hosts": 1 + max((n for job in jobs for n in job.hosts), default=0),
                "levels": LEVELS if priorities else 0,
                "weight": priorities.weight if priorities else 0,
                "floor": priorities.floor if priorities else 0,
                "control_ns": nanoseconds(priorities.control) if priorities else 0,
                "stop": stop.flag,
            },
        ),
    )
    try:
        bursts = _copied(ffi, found.bursts, found.burst_count)
        samples = _copied(ffi, found.samples, found.sample_count)
        events = _copied(ffi, found.events, found.event_count)
        counters = found.counters
        stopped = bool(found.stopped)
        counted = {name: int(getattr(counters, name)) for name, _ in ffi.typeof(counters).fields}
    finally:
        lib.sim_free(found)
    if stopped:
        raise SimulationStopped("The simulation was stopped before its jobs were done.")
    upto = np.cumsum([job.burst_count for job in jobs])
    return SimulationResult(np.split(bursts, upto[:-1]), samples, events, counted)


def _window(links: Sequence[SimulatedLink], jobs: Sequence[PacketJob], mss: int) -> int:
    """Segments in flight at most: WINDOW, or where a path holds more, what it holds twice over.

    So much is what people give to the buffers of hosts on such links.
    """
    most = WINDOW
    for job in jobs:
        for ahead, back in job.paths:
            rtt = sum(links[number].rtt for number in ahead)
            held = max(links[number].rate for number in ahead) / 8 * rtt
            held += sum(links[number].queue for number in (*ahead, *back))
            most = max(most, 2 ** math.ceil(math.log2(2 * held / mss + 1)))
    return most


def _copied(ffi: Any, first: Any, count: int) -> Structs:
    """An array of `count` structs from `first` on, which may be NULL where there are none."""
    struct = ffi.typeof(first).item
    kinds = {
        "names": [name for name, _ in struct.fields],
        "formats": [f"u{ffi.sizeof(field.type)}" for _, field in struct.fields],
        "offsets": [field.offset for _, field in struct.fields],
        "itemsize": ffi.sizeof(struct),
    }
    memory = bytes(ffi.buffer(first, count * ffi.sizeof(struct))) if count else b""
    return np.frombuffer(memory, dtype=np.dtype(kinds))  # type: ignore[call-overload]
