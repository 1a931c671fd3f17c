"""Measures what the module costs: instructions for each ACK, and bulk throughput, next to its base.

    scripts/vm run bookworm --module --icount -- .venv/bin/python tests/guest/bench_cc.py

To be run in a guest in virtual time, where an instruction takes a nanosecond. The cost of an ACK is
the time that the kernel's tcp_ack() takes, by ftrace's function graph, over a real connection with
losses; the median of a run is taken, as losses and interrupts make a long tail. Nothing else is
traced, so the tracer adds the same to each. Throughput is measured once over a link that limits it
and once over one that is faster than the processor. Arms take turns within each repetition.
"""

from __future__ import annotations

import argparse
import re
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from netns.connections import bottleneck, connection, send_burst

from mltcp_tools.backends import get_backend
from mltcp_tools.backends.base import Backend, Job, JobParams

TRACING = Path("/sys/kernel/tracing")
TRACED = "tcp_ack"
DURATION = re.compile(rf"([\d.]+) us +\| +{TRACED}\(\);")

SLOW, FAST = 50_000_000, 40_000_000_000  # bit/s
ACK_BYTES, SLOW_BYTES, FAST_BYTES = 2_000_000, 5_000_000, 30_000_000


@dataclass(frozen=True)
class Arm:
    """A congestion control, what it is compared with, and whether a job claims its flow."""

    name: str
    base: str
    tagged: bool = False

    def __str__(self) -> str:
        return f"{self.name}, active" if self.tagged else self.name


ARMS = [
    Arm("reno", "reno"),
    Arm("mltcp_reno", "reno"),
    Arm("mltcp_reno", "reno", True),
    Arm("mltcp", "reno", True),
    Arm("cubic", "cubic"),
    Arm("mltcp_cubic", "cubic"),
    Arm("mltcp_cubic", "cubic", True),
]


def write(name: str, value: str) -> None:
    (TRACING / name).write_text(value)


@contextmanager
def traced() -> Iterator[list[float]]:
    """Nanoseconds of each call made inside; filled in at the end."""
    durations: list[float] = []
    write("buffer_size_kb", "16384")
    write("set_ftrace_filter", TRACED)
    write("current_tracer", "function_graph")
    write("trace", "")
    try:
        yield durations
    finally:
        write("tracing_on", "0")
        found = DURATION.findall((TRACING / "trace").read_text())
        durations += [float(text) * 1000 for text in found]
        write("current_tracer", "nop")
        write("tracing_on", "1")


def transfer(backend: Backend, arm: Arm, rate: int, size: int, trace: bool) -> float:
    """Median nanoseconds of an ACK, or bytes per second."""
    with bottleneck(rate, 100_000) as network, connection(network, arm.name) as sender:
        if arm.tagged:
            backend.set_job(Job(1, "measured", JobParams(total_bytes=size, gap_s=10)))
            backend.tag(sender.fileno(), 1)
        if trace:
            with traced() as durations:
                send_burst(sender, size)
            return statistics.median(durations)
        begun = time.monotonic()
        send_burst(sender, size)
        return size / (time.monotonic() - begun)


def measure(backend: Backend, repetitions: int, rate: int, size: int, trace: bool = False) -> dict:
    found = defaultdict(list)
    for repetition in range(repetitions):
        turn = repetition % len(ARMS)
        for arm in ARMS[turn:] + ARMS[:turn]:
            found[arm].append(transfer(backend, arm, rate, size, trace))
    return found


def show(title: str, found: dict, unit: str, scale: float = 1) -> None:
    print(f"\n{title}: median (least to most) of {len(found[ARMS[0]])} repetitions, {unit}")
    for arm in ARMS:
        values = [value / scale for value in found[arm]]
        middle = statistics.median(values)
        base = statistics.median(found[Arm(arm.base, arm.base)]) / scale
        line = f"  {arm!s:22} {middle:8.1f} ({min(values):.1f} to {max(values):.1f})"
        if arm.name != arm.base:
            line += f"  {middle - base:+8.1f}  {middle / base:7.4f} of {arm.base}"
        print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=5)
    repetitions = parser.parse_args().repetitions
    backend = get_backend("kmod")
    backend.load()
    found = measure(backend, repetitions, SLOW, ACK_BYTES, trace=True)
    show(f"{TRACED}()", found, "ns = instructions")
    found = measure(backend, repetitions, SLOW, SLOW_BYTES)
    show(f"bulk over {SLOW / 1e6:.0f} Mbit/s", found, "Mbit/s", 1e6 / 8)
    found = measure(backend, repetitions, FAST, FAST_BYTES)
    show("bulk limited by the processor", found, "Mbit/s", 1e6 / 8)


if __name__ == "__main__":
    main()
