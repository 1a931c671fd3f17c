# SPDX-License-Identifier: BSD-2-Clause
"""Measures what the module costs: instructions for each ACK, next to its base.

    scripts/vm run bookworm --module --icount --timeout 60min --env PYTHONPATH=tests -- \\
        .venv/bin/python tests/bench/bench_cc.py

To be run in a VM in virtual time, where an instruction takes a nanosecond. Two parts of what an
ACK costs are measured by ftrace's function graph, over a real connection with losses: tcp_ack(),
which calls the congestion control, and all of the ACK's way through TCP, from tcp_v4_rcv() on but
without the sending that it allows. The median of a run is taken, as losses and interrupts make a
long tail. What the tracer adds is measured, by tracing one more function, and subtracted: it is the
difference of what the cheapest ACKs take, which are all of one kind.

Variants take turns within each repetition.
"""

from __future__ import annotations

import argparse
import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from netns.connections import bottleneck, connection, send_burst

from mltcp_tools.kernel.backends import get_backend
from mltcp_tools.kernel.backends.base import Backend, Job, JobParams

TRACING = Path("/sys/kernel/tracing")
ACK, WAY = "tcp_ack", "tcp_v4_rcv"
NEW = "tcp_ack_update_rtt"  # called only where something was outstanding
SENDING = "__tcp_push_pending_frames"
ONE_MORE = "tcp_newly_delivered"  # called once by tcp_ack(), too
LINE = re.compile(r"^ *\d+\) *[^\s\d|]? *([\d.]+ us)? *\|( *)([\w.]*)(\(\)|})", re.MULTILINE)

RATE, QUEUE, SIZE = 50_000_000, 100_000, 2_000_000  # bit/s; bytes; bytes


@dataclass(frozen=True)
class Variant:
    """A congestion control, what it is compared with, and whether a job claims its flow."""

    name: str
    base: str
    tagged: bool = False

    def __str__(self) -> str:
        return f"{self.name}, active" if self.tagged else self.name


VARIANTS = [
    Variant("reno", "reno"),
    Variant("mltcp_reno", "reno"),
    Variant("mltcp", "reno"),
    Variant("mltcp_reno", "reno", True),
    Variant("mltcp", "reno", True),
    Variant("cubic", "cubic"),
    Variant("mltcp_cubic", "cubic"),
    Variant("mltcp_cubic", "cubic", True),
]


def write(name: str, value: str) -> None:
    (TRACING / name).write_text(value)


def durations(trace: str) -> list[float]:
    """Nanoseconds of each outermost call in which NEW was called, less those of SENDING."""
    found = []
    sending, new = 0.0, False
    for time_us, indent, name, _ in LINE.findall(trace):
        ns = float(time_us.removesuffix(" us")) * 1000 if time_us else 0.0
        new |= name == NEW
        if name == SENDING:
            sending += ns
        if len(indent) == 2 and ns:
            if new:
                found.append(ns - sending)
            sending, new = 0.0, False
    return found


@contextmanager
def graphed(outermost: str, *others: str) -> Iterator[list[str]]:
    """The function graph's text of calls of `outermost` made inside, with those of the others in
    them; filled in at the end, after which nothing is traced any more."""
    found: list[str] = []
    write("buffer_size_kb", "16384")
    write("set_ftrace_filter", " ".join((outermost, *others)))
    write("set_graph_function", outermost)
    write("current_tracer", "function_graph")
    write("trace", "")
    try:
        yield found
    finally:
        write("tracing_on", "0")
        found.append((TRACING / "trace").read_text())
        write("current_tracer", "nop")
        write("tracing_on", "1")
        write("set_graph_function", "")
        write("set_ftrace_filter", "")


@contextmanager
def traced(outermost: str, *others: str) -> Iterator[list[float]]:
    """Nanoseconds of each call of `outermost` made inside; filled in at the end."""
    found: list[float] = []
    with graphed(outermost, NEW, *others) as trace:
        yield found
    found += durations(trace[0])


def cheap(found: list[float]) -> float:
    """A twentieth of them take this at most. At a tenth one kind of ACK ends, and one of 300 more
    instructions begins, under every congestion control."""
    return statistics.quantiles(found, n=20)[0]


def transfer(
    backend: Backend,
    variant: Variant,
    trace: Sequence[str],
    of: Callable[[list[float]], float] = statistics.median,
) -> float:
    """Nanoseconds of an ACK, by default the median."""
    with bottleneck(RATE, QUEUE) as network, connection(network, variant.name) as sender:
        if variant.tagged:
            backend.set_job(Job(1, "measured", JobParams(burst_bytes=SIZE, gap_s=10)))
            backend.tag(sender.fileno(), 1)
        with traced(*trace) as found:
            send_burst(sender, SIZE)
    return of(found)


def tracer_ns(backend: Backend, repetitions: int) -> float:
    """Return what tracing one function adds to the time of the one that calls it."""
    without, within = (
        statistics.median(
            transfer(backend, VARIANTS[0], (ACK, *others), cheap) for _ in range(repetitions)
        )
        for others in ((), (ONE_MORE,))
    )
    return within - without


def measure(
    backend: Backend,
    repetitions: int,
    trace: Sequence[str],
    of: Callable[[list[float]], float] = statistics.median,
) -> dict[Variant, list[float]]:
    found = defaultdict(list)
    for repetition in range(repetitions):
        turn = repetition % len(VARIANTS)
        for variant in VARIANTS[turn:] + VARIANTS[:turn]:
            found[variant].append(transfer(backend, variant, trace, of))
    return found


def show(title: str, found: dict[Variant, list[float]], less: float) -> None:
    print(
        f"\n{title}: median (least to most) of {len(found[VARIANTS[0]])} repetitions, instructions"
    )
    for variant in VARIANTS:
        values = [value - less for value in found[variant]]
        middle = statistics.median(values)
        base = statistics.median(found[Variant(variant.base, variant.base)]) - less
        line = f"  {variant!s:22} {middle:8.1f} ({min(values):.1f} to {max(values):.1f})"
        if variant.name != variant.base:
            line += f"  {middle - base:+8.1f}  {middle / base:7.4f} of {variant.base}"
        print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=5)
    repetitions = parser.parse_args().repetitions
    backend = get_backend("kmod")
    backend.load()
    tracer = tracer_ns(backend, repetitions)
    print(f"subtracted for each function traced: {tracer:.0f} ns")
    show(f"{ACK}()", measure(backend, repetitions, (ACK,)), tracer)
    found = measure(backend, repetitions, (WAY, SENDING))
    show(f"{WAY}() without sending", found, 2 * tracer)


if __name__ == "__main__":
    main()
