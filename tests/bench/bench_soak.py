# SPDX-License-Identifier: BSD-2-Clause
"""Soaks the agent, its metrics and the page of `mltcp watch` with jobs that come and go:

    PYTHONPATH=tests:. .venv/bin/python tests/bench/bench_soak.py MINUTES [JOBS [PACE [SECONDS]]]

Each job is a process with idle connections over loopback in a cgroup of its own. First all
connections are attached and detached at once. Then the agent follows the jobs by a rule, one of
JOBS (default: 200) opens and closes PACE connections a second (1000), and every SECONDS (5) the
oldest other job ends, a new one begins, and metrics and page are fetched. Prints a table.
"""

import os
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from netns.backends_here import fresh_and_loaded
from netns.connected import FIRST_CC, attach
from netns.trainings import Training
from support.waiting import wait_for

from mltcp_tools import __version__
from mltcp_tools.base.cells import markdown
from mltcp_tools.kernel.backends.base import Backend, Job
from mltcp_tools.kernel.host import cgroups
from mltcp_tools.live.attach.processes import process
from mltcp_tools.live.attach.restore import detach
from mltcp_tools.live.attach.sockets import CAN_SEND, sockets_of

CONNECTIONS = 50
PREFIX = f"mltcp-soak-{os.getpid()}"
RULES = f"rules:\n  - {{job: '{{cgroup:{PREFIX}-(.+)}}', cgroup: '{PREFIX}-*', kinds: all}}\n"
METRICS, PAGE = "127.0.0.1:19477", "127.0.0.1:18477"

Jobs = dict[str, Training]
"""By the name of its cgroup, the oldest first."""


def begin(jobs: Jobs) -> None:
    name = f"{PREFIX}-{uuid.uuid4().hex[:8]}"
    (cgroups.root() / name).mkdir()
    within = ("sh", "-c", f'echo $$ >{cgroups.root() / name}/cgroup.procs; exec "$@"', "sh")
    words = (f"cc={FIRST_CC}", f"connections={CONNECTIONS}")
    jobs[name] = Training("holder", *words, through=within)


def end(jobs: Jobs) -> None:
    name = next(iter(jobs))
    jobs.pop(name).end()
    cgroups.remove(name)


def used(pid: int) -> tuple[float, str]:
    """A process's CPU seconds so far, and what it occupies now."""
    ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    memory = f"{pages * os.sysconf('SC_PAGE_SIZE') / 1e6:.0f} MB"
    occupied = f"{memory}, {len(os.listdir(f'/proc/{pid}/fd'))} descriptors"
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK"), occupied


def at_once(backend: Backend, jobs: Jobs) -> Iterator[list[str]]:
    """Attach and detach all connections; how long that takes."""
    begin_s = time.monotonic()
    found = sockets_of([process(each.pid) for each in jobs.values()])[0]
    own = [each for each in found if each.state in CAN_SEND]
    attach(own, Job(1, "s"), "mltcp", backend)
    yield [f"find and attach {len(own)} sockets", f"{time.monotonic() - begin_s:.2f} s"]
    begin_s = time.monotonic()
    detach(job="s")
    yield ["detach them", f"{time.monotonic() - begin_s:.2f} s"]


def soak(
    running: dict[str, int],
    url: str,
    jobs: Jobs,
    busy: Training,
    seconds: float,
    pace: float,
    change_s: float,
) -> Iterator[list[str]]:
    """Keep it up for so long; what the running processes need meanwhile."""
    begun = {name: used(pid) for name, pid in running.items()}
    begin_s = time.monotonic()
    opened = caught = changed = 0
    while (passed_s := time.monotonic() - begin_s) < seconds:
        caught += busy.ask("churn", 100)["connected"].get("mltcp", 0)
        opened += 100
        if passed_s > change_s * (changed + 1):
            changed += 1
            end(jobs)
            begin(jobs)
            for each in (f"http://{METRICS}/metrics", url):
                assert urllib.request.urlopen(each, timeout=60).read()
        time.sleep(max(0.0, begin_s + opened / pace - time.monotonic()))
    yield ["connections opened a second", f"{opened / passed_s:.0f}"]
    yield ["of these attached before their first data", f"{caught / opened:.2%}"]
    yield ["jobs that ended, and others that began", f"{changed}"]
    for name, pid in running.items():
        (before_s, before), (cpu_s, now) = begun[name], used(pid)
        yield [f"{name}: share of a CPU", f"{(cpu_s - before_s) / passed_s:.1%}"]
        yield [f"{name} at the beginning; at the end", f"{before}; {now}"]


def main(minutes: str, count: str = "200", pace: str = "1000", change_s: str = "5") -> None:
    jobs, busy = Jobs(), Jobs()
    settings = 60 * float(minutes), float(pace), float(change_s)
    with fresh_and_loaded("bpf") as backend, ExitStack() as stack:
        stack.callback(lambda: [end(each) for each in (jobs, busy) for _ in list(each)])
        for each in [jobs] * (int(count) - 1) + [busy]:
            begin(each)
        rows = [[f"{minutes} minutes, {CONNECTIONS} connections of each of {count} jobs", ""]]
        rows += at_once(backend, jobs | busy)
        rules = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "agent.yaml"
        rules.write_text(RULES)

        def mltcp(*words: str) -> subprocess.Popen[str]:
            command = [sys.executable, "-m", "mltcp_tools.cli.main", *words]
            running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            stack.callback(running.wait)
            stack.callback(running.terminate)
            return running

        agent = mltcp("agent", f"--config={rules}", f"--metrics={METRICS}")
        page = mltcp("watch", "--web", PAGE)
        assert page.stdout
        url = page.stdout.readline().strip()
        everyone = (jobs | busy).values()
        wait_for(lambda: {cc for each in everyone for cc in each.ccs()} == {"mltcp"}, "the agent")
        time.sleep(30)  # beginning is over
        running = {"agent": agent.pid, "page": page.pid}
        rows += soak(running, url, jobs, next(iter(busy.values())), *settings)
        words = " ".join(sys.argv[1:])
        print(f"{markdown(rows)}\n\n`bench_soak.py {words}`, {time.strftime('%Y-%m-%d')};")
        print(f"mltcp-tools {__version__}, {os.cpu_count()} CPUs, kernel {os.uname().release}.")


if __name__ == "__main__":
    main(*sys.argv[1:])
