# SPDX-License-Identifier: BSD-2-Clause
"""Measures attaching many sockets, catching short ones, and an agent that follows many jobs.

    PYTHONPATH=tests .venv/bin/python tests/bench/bench_attach.py [--into tests/bench/RESULTS.md]

Each job is a process with idle connections over loopback in a cgroup of its own. First all
connections are looked at, attached and detached at once; then `mltcp agent` follows the jobs by a
rule on their cgroups, and its CPU time and memory are read while nothing happens and while
each job's process opens and closes connections one after the other.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from netns.backends_here import fresh_and_loaded
from netns.connected import Holder, holder
from netns.trainings import Agent, agent
from support.result_tables import put_between

from mltcp_tools import __version__
from mltcp_tools.base.files import replace_file
from mltcp_tools.kernel.backends.base import Backend, Job
from mltcp_tools.kernel.host import cgroups
from mltcp_tools.live.attach.access import DONE
from mltcp_tools.live.attach.processes import process
from mltcp_tools.live.attach.restore import detach
from mltcp_tools.live.attach.select_access import select_access
from mltcp_tools.live.attach.sockets import CAN_SEND, sockets_of
from mltcp_tools.live.attach.switch import attach

RULES = """\
rules:
  - job: '{{cgroup:{prefix}-(\\d+)}}'
    cgroup: ['{prefix}-*']
    kinds: all
    burst_bytes: 1MB
    gap: 100ms
"""


@contextmanager
def job(name: str, connections: int) -> Iterator[Holder]:
    """A process with connections in a new cgroup of that name."""
    path = cgroups.root() / name
    path.mkdir()
    try:
        within = ("sh", "-c", f'echo $$ >{path}/cgroup.procs; exec "$@"', "sh")
        with holder(connections, through=within) as held:
            yield held
    finally:
        cgroups.remove(name)


SETTLED_S = 45.0
"""An agent looks at everything every half minute by then, and not the more often for having begun;
three looks are in a minute and a half, always."""

Row = tuple[str, str]
"""The subject, and its figures, as a table shows them."""


def told(rows: Iterable[Row]) -> Iterator[Row]:
    """The rows, each printed as soon as it is known."""
    for what, figures in rows:
        print(f"{what}: {figures}", flush=True)
        yield what, figures


def published(rows: Iterable[Row], head: Row, into: Path | None, name: str) -> None:
    """Make the page's table of that name anew, with the command that made it."""
    if into is None:
        return
    option = argparse.ArgumentParser(add_help=False)
    option.add_argument("--into")
    words = [os.path.basename(sys.argv[0]), *option.parse_known_args(sys.argv[1:])[1]]
    lines = [f"| {what} | {figures} |" for what, figures in (head, ("---", "---"), *rows)]
    made = (
        f"Measured by `{' '.join(words)}`, {time.strftime('%Y-%m-%d')}; mltcp-tools {__version__}."
        f" {os.cpu_count()} CPUs, kernel {os.uname().release}."
    )
    text = put_between(into.read_text(), name, "\n".join([*lines, "", made]))
    replace_file(into, text.encode())


def measure_attaching(held: Sequence[Holder], backend: Backend, rounds: int) -> Iterator[Row]:
    select_access(backend)  # loads the programs, as the first command does
    found = [process(each.pid) for each in held]
    times: dict[str, list[float]] = {"look": [], "attach": [], "detach": []}
    count = 0
    for _ in range(rounds):
        begin_s = time.perf_counter()
        chosen = [each for each in sockets_of(found)[0] if each.state in CAN_SEND]
        looked_s = time.perf_counter()
        changes = attach(chosen, Job(1, "bench"), "mltcp", backend)
        attached_s = time.perf_counter()
        restored = detach(job="bench")
        times["look"].append(looked_s - begin_s)
        times["attach"].append(attached_s - looked_s)
        times["detach"].append(time.perf_counter() - attached_s)
        count = sum(each.outcome in DONE for each in changes)
        assert count == sum(each.outcome == "restored" for each in restored)
    for what, seconds in times.items():
        yield (
            f"{what} {count} sockets",
            f"median {statistics.median(seconds):.2f} s, {min(seconds):.2f} to {max(seconds):.2f}"
            f" in {rounds} rounds",
        )


def resident_mb(running: Agent) -> float:
    """Resident memory of the agent."""
    pages = int(Path(f"/proc/{running.process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def measure_agent(
    held: Sequence[Holder], prefix: str, steady_s: float, seconds: float, churn: int
) -> Iterator[Row]:
    with (
        tempfile.TemporaryDirectory() as folder,
        agent(Path(folder), RULES.format(prefix=prefix)) as running,
    ):
        last = held[-1]
        begin_s = time.perf_counter()
        while set(last.congestion_controls()) != {"mltcp"}:
            time.sleep(0.1)
        yield "an agent's start to the last socket", f"{time.perf_counter() - begin_s:.1f} s"
        time.sleep(SETTLED_S)
        before_s, begin_s = running.processor_s(), time.perf_counter()
        time.sleep(steady_s)
        share = (running.processor_s() - before_s) / (time.perf_counter() - begin_s)
        yield (
            f"the agent, steady for {steady_s:g} s",
            f"{share:.1%} of a CPU, {resident_mb(running):.0f} MB",
        )
        before_s, begin_s = running.processor_s(), time.perf_counter()
        opened, caught = 0, 0
        while time.perf_counter() - begin_s < seconds:
            ran = last.ask("churn", churn)["connected"]
            opened, caught = opened + churn, caught + ran.get("mltcp", 0)
        length_s = time.perf_counter() - begin_s
        share = (running.processor_s() - before_s) / length_s
        yield (
            f"{opened / length_s:.0f} connections a second, one after the other",
            f"{caught} of {opened} attached before their first data, {share:.1%} of a CPU,"
            f" {resident_mb(running):.0f} MB",
        )
        running.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="bpf", help="bpf or kmod")
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--connections", type=int, default=50, help="of each job")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--steady", type=float, default=90.0, help="seconds in which nothing happens"
    )
    parser.add_argument("--seconds", type=float, default=20.0, help="in which one job churns")
    parser.add_argument("--churn", type=int, default=1000)
    parser.add_argument("--into", type=Path, metavar="FILE", help="whose table is made anew")
    args = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4096), hard))
    load = os.getloadavg()[0]
    print(f"{os.cpu_count()} CPUs, load average {load:.1f}", flush=True)
    prefix = f"mltcp-bench-{os.getpid()}"
    with fresh_and_loaded(args.backend) as backend, ExitStack() as stack:
        held = [
            stack.enter_context(job(f"{prefix}-{number}", args.connections))
            for number in range(args.jobs)
        ]
        rows = [*told(measure_attaching(held, backend, args.rounds))]
        rows += told(measure_agent(held, prefix, args.steady, args.seconds, args.churn))
    head = f"{args.connections} connections of each of {args.jobs} jobs", ""
    published(rows, head, args.into, "attaching")


if __name__ == "__main__":
    main()
