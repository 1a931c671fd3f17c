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

from mltcp_tools.emulator.patterns import Task, connection_of, connections
from mltcp_tools.errors import MltcpError
from mltcp_tools.native import rate, uapi
from mltcp_tools.native.extension import extension

Structs = npt.NDArray[Any]

_DECLARATIONS = """
struct sim_link {
    double rate, loss;
    uint64_t queue, mark_min, mark_max, rtt_ns;
};
struct sim_task {
    uint32_t rank, ends_at, flow, bytes;
    double share;
    uint32_t after_count;
    const uint32_t *after;
};
struct sim_path {
    uint32_t ahead_count, back_count;
    const uint32_t *ahead, *back;
};
struct sim_job {
    uint32_t flows, iterations, bursts, mltcp, base, follows, both, ahead_count, back_count;
    const uint32_t *ahead, *back;
    uint64_t chunk;
    uint64_t start_ns;
    const uint64_t *compute_ns, *bytes, *compressed, *compress_ns;
    uint32_t ranks, task_count;
    const struct sim_task *tasks;
    const struct sim_path *paths;
    struct mltcp_params params;
    struct mltcp_rate_params rate;
};
struct sim_options {
    uint64_t seed, trace_ns;
    uint32_t slow_start_after_idle, mss, window;
    uint64_t stamp_ns;
    uint32_t skew;
    uint64_t join_ns;
    uint32_t levels, weight;
    double floor;
    uint64_t control_ns;
    const volatile uint32_t *stop;
};
struct sim_burst {
    uint64_t start_ns, first_end_ns, end_ns, bytes;
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
    uint64_t sent, retransmitted, lost, dropped, marked, forwarded, forwarded_bytes;
    uint64_t largest_queue, received_bytes, timeouts;
};
struct sim_result {
    struct sim_burst *bursts;
    struct sim_sample *samples;
    struct sim_event *events;
    uint64_t burst_count, sample_count, event_count;
    struct sim_counters counters;
};
#define SIM_COMPUTES 4294967295
enum sim_base { SIM_RENO, SIM_DCTCP };
struct sim_result *sim_run(const struct sim_link *links, uint32_t link_count,
                           const struct sim_job *jobs, uint32_t count,
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


MSS = 1448
"""Payload of a full segment over Ethernet with a MTU of 1500, bytes: IPv4, TCP, time stamps."""

WINDOW = 4096
"""Segments in flight at most: about what the kernel's default buffers of 6 MB hold."""


STAMPS_S = 1e-3
"""What time stamps count in Linux, seconds, unless a route says otherwise (kernel 6.7 on)."""

SKEW_PPM = 100
"""By how much clocks of hosts differ at most from the true one, in 10^-6: ordinary quartz."""


@dataclass(frozen=True)
class Link:
    """One direction of a link.

    rate: bit/s on the wire. queue: bytes on the wire. rtt: seconds that the link adds to an empty
    round trip, half of them on the way ahead. loss: share of segments lost at random. marks: bytes
    of the queue from which on a segment may be marked, and from which on it is (RFC 3168); None:
    none is.
    """

    rate: float
    queue: int
    rtt: float
    loss: float = 0.0
    marks: tuple[int, int] | None = None


@dataclass(frozen=True)
class Priorities:
    """Levels of strict priority that bursts get by their order, each with a queue of its own at a
    link.

    levels: 8 at most; 0: one queue for all. weight: number of the weights by which bursts are
    ordered (enum sim_weight). control: seconds until levels follow a burst's beginning or end.
    floor: share of a link that each level is sure of.
    """

    levels: int = 0
    weight: int = 0
    control: float = 0.0
    floor: float = 0.0


Route = tuple[tuple[int, ...], tuple[int, ...]]
"""Numbers of the links that a flow's segments cross, in order, and its ACKs."""


@dataclass(frozen=True)
class Program:
    """What the `ranks` ranks of a job do in an iteration, see emulator/patterns.py.

    paths: of each of the tasks' connections, in the order in which these are first used.
    """

    ranks: int
    tasks: Sequence[Task]
    paths: Sequence[Route]


@dataclass(frozen=True)
class PacketJob:
    """One periodic job.

    start: seconds until its first iteration. compute: seconds of each iteration, shared equally by
    its `bursts`. bytes: of each burst, what each flow sends. params: fields of struct mltcp_params,
    with mechanisms of their own; None for the plain base. rate: fields of struct mltcp_rate_params,
    where windows follow the network's feedback. base: "reno" or "dctcp". ahead, back:
    numbers of the links that segments and ACKs cross, in order; where none is named back, ACKs
    don't wait. both: as many bytes come back at the same time, by flows numbered behind the others;
    with `chunk`, each end sends so many bytes only when as many have come. program: what its ranks
    do, in place of `bytes`, `ahead` and `back`; an iteration is then one burst. compressed: where
    there are priorities, what each flow sends of a burst that isn't first. compress: the seconds
    that this takes, of each burst.
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

    @property
    def flows(self) -> int:
        """How many flows carry bytes of their own one way."""
        return len(self.program.paths if self.program else self.bytes[0])

    @property
    def burst_count(self) -> int:
        """Bursts of all its iterations."""
        return len(self.compute) * self.bursts

    @property
    def paths(self) -> Sequence[Route]:
        """The paths that its flows take."""
        return self.program.paths if self.program else [(self.ahead, self.back)]


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
    links: Link | Sequence[Link],
    jobs: Sequence[PacketJob],
    *,
    seed: int,
    trace: float = 0.0,
    slow_start_after_idle: bool = True,
    mss: int = MSS,
    join: float = 0.0,
    stamps: float = STAMPS_S,
    skew: int = SKEW_PPM,
    priorities: Priorities = Priorities(),
    stop: Stop | None = None,
) -> Result:
    """Run the jobs until all are done; the same arguments give the same result.

    seed: of random losses and of the hosts' jitter, below 2^64. trace: seconds between samples of
    sending flows, 0 for none. mss: payload of a full segment, bytes. join: seconds within which
    receivers join segments, so that one ACK serves them all (GRO), 0 for none. stamps: seconds that
    receivers' time stamps count, 0 without; skew: how much too fast or too slow their clocks go at
    most, in 10^-6. Other threads run meanwhile. Raises Stopped when `stop` is set, and HostError
    without a C compiler.
    """
    links = [links] if isinstance(links, Link) else links
    for job in jobs:
        for ahead, back in job.paths:
            if not ahead or not all(0 <= n < len(links) for n in (*ahead, *back)):
                raise ValueError(f"a job crosses {ahead} and {back} of {len(links)} links")
        if (job.both and not job.back) or (job.chunk and not job.both):
            raise ValueError("a job that sends both ways needs links back, and one with chunks too")
    stop = stop or Stop()
    lib, ffi = _library()
    arrays: list[Any] = []  # cffi frees what nobody holds

    def array(values: Sequence[Any], kind: str = "uint64_t[]") -> Any:
        arrays.append(ffi.new(kind, list(values)))
        return arrays[-1]

    def program(job: PacketJob) -> dict[str, Any]:
        if job.program is None:
            return {}
        number = {connection: n for n, connection in enumerate(connections(job.program.tasks))}
        tasks = [
            {
                "rank": task.rank,
                "ends_at": task.ends_at,
                "flow": lib.SIM_COMPUTES if task.to is None else number[connection_of(task)],
                "bytes": task.size,
                "share": task.share,
                "after_count": len(task.after),
                "after": array(task.after, "uint32_t[]"),
            }
            for task in job.program.tasks
        ]
        paths = [
            {
                "ahead": array(ahead, "uint32_t[]"),
                "ahead_count": len(ahead),
                "back": array(back, "uint32_t[]"),
                "back_count": len(back),
            }
            for ahead, back in job.program.paths
        ]
        return {
            "ranks": job.program.ranks,
            "task_count": len(tasks),
            "tasks": array(tasks, "struct sim_task[]"),
            "paths": array(paths, "struct sim_path[]"),
        }

    described = ffi.new(
        "struct sim_job[]",
        [
            {
                "flows": job.flows,
                "iterations": len(job.compute),
                "bursts": job.bursts,
                "mltcp": job.params is not None,
                "base": lib.SIM_DCTCP if job.base == "dctcp" else lib.SIM_RENO,
                "both": job.both,
                "ahead": array(job.ahead, "uint32_t[]"),
                "ahead_count": len(job.ahead),
                "back": array(job.back, "uint32_t[]"),
                "back_count": len(job.back),
                "chunk": job.chunk,
                "start_ns": nanoseconds(job.start),
                "compute_ns": array([nanoseconds(each) for each in job.compute]),
                "bytes": array([size for burst in job.bytes for size in burst]),
                "compressed": array([size for burst in job.compressed for size in burst])
                if job.compressed is not None
                else ffi.NULL,
                "compress_ns": array([nanoseconds(each) for each in job.compress]),
                "params": job.params or {},
                "follows": job.rate is not None,
                "rate": job.rate or {},
            }
            | program(job)
            for job in jobs
        ],
    )
    found = lib.sim_run(
        ffi.new(
            "struct sim_link[]",
            [
                {
                    "rate": link.rate,
                    "loss": link.loss,
                    "queue": link.queue,
                    "mark_min": link.marks[0] if link.marks else 0,
                    "mark_max": link.marks[1] if link.marks else 0,
                    "rtt_ns": nanoseconds(link.rtt),
                }
                for link in links
            ],
        ),
        len(links),
        described,
        len(jobs),
        ffi.new(
            "struct sim_options *",
            {
                "seed": seed,
                "trace_ns": nanoseconds(trace),
                "slow_start_after_idle": slow_start_after_idle,
                "mss": mss,
                "window": _window(links, jobs, mss),
                "stamp_ns": nanoseconds(stamps),
                "skew": skew,
                "join_ns": nanoseconds(join),
                "levels": priorities.levels,
                "weight": priorities.weight,
                "floor": priorities.floor,
                "control_ns": nanoseconds(priorities.control),
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
    upto = np.cumsum([job.burst_count for job in jobs])
    return Result(np.split(bursts, upto[:-1]), samples, events, counted)


def _window(links: Sequence[Link], jobs: Sequence[PacketJob], mss: int) -> int:
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


def nanoseconds(seconds: float) -> int:
    """Whole nanoseconds of a time in seconds."""
    return round(seconds * 1e9)
