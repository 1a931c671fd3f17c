# SPDX-License-Identifier: BSD-2-Clause
"""Measures how long after it is established a connection is switched, and what the agent costs.

    PYTHONPATH=tests .venv/bin/python tests/bench/bench_follow.py

A process opens connections at random moments while `mltcp agent` follows it; the time is from
connect() having returned to the process finding the new congestion control on its socket. Once with
the tracepoint and once with polling, with no other sockets on the host and with many of another
process. The cost is the agent's CPU time per second, while nothing happens.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import statistics
import tempfile
import time
import uuid
from contextlib import ExitStack
from pathlib import Path

from netns.backends_here import fresh_and_loaded
from netns.connected import holder
from netns.trainings import agent, training

RULES = "follow: {}\nrules:\n  - {{job: measured, command: {}, kinds: all}}\n"
IDLE_S = 10.0
PAUSE_S = 0.3
"""Longest pause between connections; several times as long as polling's."""


def measure(method: str, connections: int, others: int) -> tuple[list[float], float]:
    """Seconds until each connection was switched, and the share of a CPU when idle."""
    mark = f"mark-{uuid.uuid4().hex}"
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if others:
            stack.enter_context(holder(others))
        running = stack.enter_context(agent(folder, RULES.format(method, mark)))
        job = stack.enter_context(training(mark))
        running.wait_for(f"noticed by {method} (")
        delays = []
        for _ in range(connections):
            time.sleep(random.uniform(0, PAUSE_S))
            established_s = float(job.ask("connect").split()[0])
            delays.append(float(job.ask("switched mltcp")) - established_s)
        before_s = running.processor_s()
        time.sleep(IDLE_S)
        cost = (running.processor_s() - before_s) / IDLE_S
        running.stop()
    return delays, cost


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="bpf", help="bpf or kmod")
    parser.add_argument("--connections", type=int, default=40)
    parser.add_argument("--others", type=int, nargs="*", default=[0, 1000])
    args = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * max(args.others) + 100), hard))
    load = os.getloadavg()[0]
    print(f"{args.connections} connections, {os.cpu_count()} CPUs, load average {load:.1f}")
    with fresh_and_loaded(args.backend):
        for others in args.others:
            for method in ("tracepoint", "polling"):
                delays, cost = measure(method, args.connections, others)
                ms = sorted(1000 * each for each in delays)
                print(
                    f"{method}, {others} other sockets: median {statistics.median(ms):.1f} ms, nine"
                    f" of ten within {ms[len(ms) * 9 // 10 - 1]:.1f}, all within {ms[-1]:.1f};"
                    f" idle agent: {cost:.1%} of a CPU",
                    flush=True,
                )


if __name__ == "__main__":
    main()
