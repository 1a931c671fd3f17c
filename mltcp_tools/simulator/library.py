"""The simulator (simulator.h and the C files beside it) called from Python, through cffi."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mltcp_tools.errors import MltcpError
from mltcp_tools.native import rate, uapi
from mltcp_tools.native.extension import extension

Structs = npt.NDArray[Any]

_DECLARATIONS = """
struct sim_link {
    double rate, loss;
    uint64_t queue, rtt_ns;
    uint32_t levels, weight;
    uint64_t control_ns;
};
struct sim_job {
    uint32_t flows, iterations, bursts, mltcp, follows;
    uint64_t start_ns;
    const uint64_t *compute_ns, *bytes;
    struct mltcp_params params;
    struct mltcp_rate_params rate;
};
struct sim_options {
    uint64_t seed, trace_ns;
    uint32_t slow_start_after_idle;
    const volatile uint32_t *stop;
};
struct sim_burst {
    uint64_t start_ns, first_end_ns, end_ns;
};
struct sim_sample {
    uint64_t time_ns, acked;
    uint32_t job, flow, iteration, cwnd, ssthresh, srtt_us, retransmits;
};
struct sim_event {
    uint64_t first_ack_ns, last_ack_ns, bytes;
    uint32_t job, flow, iteration, retransmits, srtt_us, cwnd, ratio;
};
struct sim_counters {
    uint64_t sent, retransmitted, lost, dropped, forwarded, forwarded_bytes;
    uint64_t largest_queue, received_bytes, timeouts;
};
struct sim_result {
    struct sim_burst *bursts;
    struct sim_sample *samples;
    struct sim_event *events;
    uint64_t burst_count, sample_count, event_count;
    struct sim_counters counters;
};
struct sim_result *sim_run(const struct sim_link *link, const struct sim_job *jobs, uint32_t count,
                           const struct sim_options *options);
void sim_free(struct sim_result *result);
"""


@functools.cache
def _library() -> tuple[Any, Any]:
    return extension(
        "simulator",
        uapi.STRUCTS + rate.STRUCTS + _DECLARATIONS,
        '#include "simulator.h"\n',
        Path(__file__).resolve().parent,
    )


@dataclass(frozen=True)
class Link:
    """The bottleneck: rate in bit/s on the wire, queue in bytes on the wire, round trip of the
    empty path in seconds, and the share of packets lost at random.

    levels: of priority, 8 at most, each with a queue of that size; 0: one queue for all. weight:
    number of the weights by which bursts are ordered (enum sim_weight). control: seconds until
    levels follow a burst's beginning or end.
    """

    rate: float
    queue: int
    rtt: float
    loss: float = 0.0
    levels: int = 0
    weight: int = 0
    control: float = 0.0


@dataclass(frozen=True)
class Job:
    """One periodic job.

    start: seconds until its first iteration. compute: seconds of each iteration, shared equally by
    its `bursts`. bytes: of each burst, what each flow sends. params: fields of struct mltcp_params,
    with mechanisms of their own; None for plain Reno. rate: fields of struct mltcp_rate_params,
    where windows follow the network's feedback.
    """

    start: float
    compute: Sequence[float]
    bytes: Sequence[Sequence[int]]
    bursts: int = 1
    params: dict[str, int] | None = None
    rate: dict[str, int] | None = None

    @property
    def flows(self) -> int:
        """How many flows it has."""
        return len(self.bytes[0])


@dataclass(frozen=True)
class Result:
    """What came of a simulation: the structs of simulator.h as arrays with their fields.

    bursts: of each job, all of its bursts in order.
    """

    bursts: list[Structs]
    samples: Structs
    events: Structs
    counters: dict[str, int]


class Stop:
    """Ends simulations early, from another thread."""

    def __init__(self) -> None:
        _, ffi = _library()
        self.flag: Any = ffi.new("uint32_t *", 0)

    def set(self) -> None:
        """Have those that were given this raise Stopped, now or when they begin."""
        self.flag[0] = 1


class Stopped(MltcpError):
    """A simulation was stopped before its jobs were done."""


def simulate(
    link: Link,
    jobs: Sequence[Job],
    *,
    seed: int,
    trace: float = 0.0,
    slow_start_after_idle: bool = True,
    stop: Stop | None = None,
) -> Result:
    """Run the jobs until all are done; the same arguments give the same result.

    seed: of random losses and of the hosts' jitter, below 2^64. trace: seconds between samples of
    sending flows, 0 for none. Other threads run meanwhile. Raises Stopped when `stop` is set, and
    HostError without a C compiler.
    """
    stop = stop or Stop()
    lib, ffi = _library()
    arrays: list[Any] = []  # cffi frees what nobody holds

    def array(values: Sequence[int]) -> Any:
        arrays.append(ffi.new("uint64_t[]", values))
        return arrays[-1]

    described = ffi.new(
        "struct sim_job[]",
        [
            {
                "flows": job.flows,
                "iterations": len(job.compute),
                "bursts": job.bursts,
                "mltcp": job.params is not None,
                "start_ns": nanoseconds(job.start),
                "compute_ns": array([nanoseconds(each) for each in job.compute]),
                "bytes": array([size for burst in job.bytes for size in burst]),
                "params": job.params or {},
                "follows": job.rate is not None,
                "rate": job.rate or {},
            }
            for job in jobs
        ],
    )
    found = lib.sim_run(
        ffi.new(
            "struct sim_link *",
            {
                "rate": link.rate,
                "loss": link.loss,
                "queue": link.queue,
                "rtt_ns": nanoseconds(link.rtt),
                "levels": link.levels,
                "weight": link.weight,
                "control_ns": nanoseconds(link.control),
            },
        ),
        described,
        len(jobs),
        ffi.new(
            "struct sim_options *",
            {
                "seed": seed,
                "trace_ns": nanoseconds(trace),
                "slow_start_after_idle": slow_start_after_idle,
                "stop": stop.flag,
            },
        ),
    )
    try:
        bursts = _copied(ffi, found.bursts, found.burst_count)
        samples = _copied(ffi, found.samples, found.sample_count)
        events = _copied(ffi, found.events, found.event_count)
        counters = found.counters
        counted = {name: int(getattr(counters, name)) for name, _ in ffi.typeof(counters).fields}
    finally:
        lib.sim_free(found)
    if not bursts["end_ns"].all():
        raise Stopped("The simulation was stopped before its jobs were done.")
    upto = np.cumsum([len(job.bytes) for job in jobs])
    return Result(np.split(bursts, upto[:-1]), samples, events, counted)


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


def nanoseconds(seconds: float) -> int:
    """Whole nanoseconds of a time in seconds."""
    return round(seconds * 1e9)
