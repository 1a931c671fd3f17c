# SPDX-License-Identifier: BSD-2-Clause
"""Soaks the agent: connections and trials, rules and agents that come and go, for hours.

    PYTHONPATH=tests .venv/bin/python tests/bench/bench_soak.py --minutes 60

Each job is a process with idle connections in a cgroup of its own, which the agent follows by a
rule. One of them opens and closes connections at a steady pace; another one trains, and is tried
again and again. Now and then the rules are read again, the trial is killed, and the agent is
stopped or killed and started anew. A line a minute says what has grown: the agent's memory and
descriptors, records on disk, and the kernel's BPF maps, programs and pins.
`--into tests/bench/RESULTS.md` makes its table anew.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.bench_attach import RULES, Row, job, published, resident_mb
from netns.backends_here import fresh_and_loaded
from netns.connected import Holder
from netns.trainings import Agent, training

from mltcp_tools.kernel.host import cgroups
from mltcp_tools.kernel.host.locks import RUN_DIR

SAMPLE_S, REREAD_S, TRIAL_S, KILL_TRIAL_S = 60.0, 20.0, 10.0, 45.0
CHUNK = 100
"""Connections opened and closed before anything else is done."""

TRIAL = ("--phase-time", "5s", "--abort-if-slower", "300%")


class Soaked:
    """The agent and the trial, as they come and go."""

    def __init__(self, folder: Path, rules: str, trained: str) -> None:
        self._folder, self._rules, self._trained = folder, rules, trained
        self.happened: Counter[str] = Counter()
        self._trial: subprocess.Popen[bytes] | None = None
        self.agent = self._start()

    def _start(self) -> Agent:
        started = Agent(self._folder, self._rules)
        started.wait_for("Following")
        return started

    def change_agent(self) -> None:
        """Stop or kill the agent, in turn, and start another one."""
        killed = self.happened["agents stopped"] > self.happened["agents killed"]
        self.agent.stop(signal.SIGKILL if killed else signal.SIGTERM)
        self.happened["agents killed" if killed else "agents stopped"] += 1
        self.agent = self._start()

    def reread(self) -> None:
        self.agent.process.send_signal(signal.SIGHUP)
        self.happened["rules read again"] += 1

    def try_again(self) -> None:
        """Begin a trial where none runs."""
        if self._trial is not None and self._trial.poll() is None:
            return
        words = ["trial", "--job", self._trained, *TRIAL]
        if self._trial is not None:
            self.happened["trials ended"] += 1
        self._trial = subprocess.Popen(
            [sys.executable, "-m", "mltcp_tools.cli.main", *words],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def kill_trial(self) -> None:
        if self._trial is not None and self._trial.poll() is None:
            self._trial.kill()
            self.happened["trials killed"] += 1

    def close(self) -> None:
        self.kill_trial()
        if self._trial is not None:
            self._trial.wait()
        self.agent.stop()


def counted_in_kernel(what: str) -> int:
    """Return how many maps (`map`) or programs (`prog`) of BPF the kernel has."""
    done = subprocess.run(["bpftool", "-j", what, "show"], stdout=subprocess.PIPE, check=True)
    return len(json.loads(done.stdout))


def sample(soaked: Soaked) -> dict[str, float]:
    """Figures that must not grow."""
    pid = soaked.agent.process.pid
    return {
        "MB": resident_mb(soaked.agent),
        "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
        "records kB": sum(each.stat().st_size for each in RUN_DIR.rglob("*.json")) / 1000,
        "maps": counted_in_kernel("map"),
        "programs": counted_in_kernel("prog"),
        "pins": sum(1 for each in Path("/sys/fs/bpf").rglob("*") if each.is_file()),
    }


@contextmanager
def trainer(name: str) -> Iterator[None]:
    """A job that trains, in a new cgroup of that name."""
    path = cgroups.root() / name
    path.mkdir()
    try:
        within = ("sh", "-c", f'echo $$ >{path}/cgroup.procs; exec "$@"', "sh")
        with training(f"mark-{uuid.uuid4().hex}", "cc=reno", through=within) as trained:
            for _ in range(2):
                trained.ask("connect")
            trained.tell("train 10000000 0.1 200000")
            yield
    finally:
        cgroups.remove(name)


class Minute(NamedTuple):
    """Figures of a minute. busy: CPU time of the agent, a share; None: it is a new one."""

    grown: dict[str, float]
    pace: float
    caught: float
    busy: float | None


def soak(
    soaked: Soaked, churning: Holder, minutes: float, pace: float, agent_s: float
) -> Iterator[Minute]:
    """The figures of each minute."""
    begin_s = minute_s = time.monotonic()
    due = {
        "sample": SAMPLE_S,
        "reread": REREAD_S,
        "trial": TRIAL_S,
        "kill": KILL_TRIAL_S,
        "agent": agent_s,
    }
    opened, caught, before_s = 0, 0, soaked.agent.processor_s()
    owner = soaked.agent
    while (passed_s := time.monotonic() - begin_s) < 60 * minutes:
        if passed_s >= due["trial"]:
            due["trial"] += TRIAL_S
            soaked.try_again()
        ran = churning.ask("churn", CHUNK)["connected"]
        opened, caught = opened + CHUNK, caught + ran.get("mltcp", 0)
        if passed_s >= due["reread"]:
            due["reread"] += REREAD_S
            soaked.reread()
        if passed_s >= due["kill"]:
            due["kill"] += KILL_TRIAL_S * random.uniform(1, 5)
            soaked.kill_trial()
        if passed_s >= due["sample"]:
            due["sample"] += SAMPLE_S
            length_s = time.monotonic() - minute_s
            same = owner is soaked.agent
            busy = (owner.processor_s() - before_s) / length_s if same else None
            found = Minute(sample(soaked), opened / length_s, caught / opened, busy)
            told = ", ".join(f"{name} {value:.0f}" for name, value in found.grown.items())
            print(
                f"minute {passed_s / 60:.0f}: {told}; {found.pace:.0f} connections a second,"
                f" {found.caught:.1%} caught;"
                f" {'a new agent' if busy is None else f'{busy:.1%} of a CPU'}",
                flush=True,
            )
            yield found
            minute_s, opened, caught = time.monotonic(), 0, 0
            owner, before_s = soaked.agent, soaked.agent.processor_s()
        if passed_s >= due["agent"]:
            due["agent"] += agent_s
            soaked.change_agent()
        behind_s = opened / pace - (time.monotonic() - minute_s)
        time.sleep(max(0.0, behind_s))


def summary(minutes: Sequence[Minute], happened: Counter[str]) -> list[Row]:
    """The rows of a table: what must not grow, first, last and at most."""
    rows = [
        (
            name,
            f"{minutes[0].grown[name]:.0f} after a minute, {minutes[-1].grown[name]:.0f} at the"
            f" end, {max(each.grown[name] for each in minutes):.0f} at most",
        )
        for name in minutes[0].grown
    ]
    busy = [each.busy for each in minutes if each.busy is not None]
    paces = [each.pace for each in minutes]
    caught = [each.caught for each in minutes]
    return [
        *rows,
        ("connections a second", f"{min(paces):.0f} to {max(paces):.0f}"),
        ("of these attached before their first data", f"{min(caught):.1%} to {max(caught):.1%}"),
        ("share of a CPU that the agent took", f"{min(busy):.0%} to {max(busy):.0%}"),
        *((what, str(count)) for what, count in happened.items()),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--connections", type=int, default=50, help="of each job")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--pace", type=float, default=1000.0, help="connections a second, at most")
    parser.add_argument(
        "--agents", type=float, default=240.0, help="seconds of one; every other one is killed"
    )
    parser.add_argument("--into", type=Path, metavar="FILE", help="whose table is made anew")
    args = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4096), hard))
    print(f"{os.cpu_count()} CPUs, load average {os.getloadavg()[0]:.1f}", flush=True)
    prefix = f"mltcp-soak-{os.getpid()}"
    with fresh_and_loaded("bpf"), ExitStack() as stack:
        held = [
            stack.enter_context(job(f"{prefix}-{number}", args.connections))
            for number in range(args.jobs)
        ]
        stack.enter_context(trainer(f"{prefix}-{args.jobs}"))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        soaked = Soaked(folder, RULES.format(prefix=prefix), str(args.jobs))
        stack.callback(soaked.close)
        while set(held[-1].congestion_controls()) != {"mltcp"}:
            time.sleep(0.1)
        found = [*soak(soaked, held[-1], args.minutes, args.pace, args.agents)]
        print(", ".join(f"{what}: {count}" for what, count in soaked.happened.items()))
    head = (
        f"{args.minutes:g} minutes, {args.connections} connections of each of {args.jobs} jobs",
        "",
    )
    published(summary(found, soaked.happened), head, args.into, "soak")


if __name__ == "__main__":
    main()
