# SPDX-License-Identifier: BSD-2-Clause
"""The comparison of collectives on one host: ranks and aggregator in namespaces of their own."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from mltcp_tools.base.errors import MltcpError
from mltcp_tools.collectives.bounds import Rates
from mltcp_tools.collectives.daemon import ask, is_up, run_daemon
from mltcp_tools.collectives.gloo import Gloo
from mltcp_tools.collectives.registry import COLLECTIVES
from mltcp_tools.collectives.session import PORT
from mltcp_tools.kernel.host.lifetime import die_with_parent
from mltcp_tools.kernel.host.programs import module_command
from mltcp_tools.kernel.native.libbpf import check, library
from mltcp_tools.lab.collectives.star import WORKER_INTERFACE, Star
from mltcp_tools.lab.testbed.leftovers import RunLock, remove_leftovers, require_privileges
from mltcp_tools.lab.testbed.namespaces import inside

if TYPE_CHECKING:
    from mltcp_tools.lab.collectives.bench import (
        BenchPlan,  # needs torch, which the aggregator doesn't
    )

FAST = 500_000_000
"""Rate of links from which TCP (Gloo) is a fair rival only with offloads and queues of 1 MB."""

_START_S = 60.0
_RUN_TIME = 0  # enum bpf_stats_type
_MASTER_PORT = 29400


def bench_here(plan: BenchPlan, rates: Sequence[int]) -> dict[str, Any]:
    """Rows of the plan (bench.BenchRow as dictionaries), and what the aggregator counted.

    rates: of each worker's link in bit/s. Needs root.
    """
    is_fast = min(rates) >= FAST
    require_privileges()
    remove_leftovers()
    with (
        RunLock() as lock,
        programs_counted(),
        Star(lock.id, rates, 1_000_000 if is_fast else 100_000, offloads=is_fast) as star,
        aggregator(star, f"bench-{lock.id}", "xdp") as name,
    ):
        rows = run_ranks(star, plan)
        add_bounds(rows, rates)
        counters = ask(name, "status")
    return {"rows": rows, "aggregator": counters}


@contextlib.contextmanager
def programs_counted() -> Iterator[None]:
    """Have the kernel count how long BPF programs run, as long as the context lasts."""
    fd = check(library().call.bpf_enable_stats(_RUN_TIME), "counting the time of programs")
    try:
        yield
    finally:
        os.close(fd)


def add_bounds(rows: list[dict[str, Any]], rates: Rates) -> None:
    """Add bound_s and most_speedup (bench.BenchRow) to rows. rates: of the links."""

    def bound_s(row: dict[str, Any], algorithm: str) -> float:
        return COLLECTIVES[algorithm].bound_s(rates, row["bytes"], row["density"])

    with_gloo = any(row["algorithm"] == Gloo.name for row in rows)
    for row in rows:
        row["bound_s"] = bound_s(row, row["algorithm"])
        row["most_speedup"] = bound_s(row, Gloo.name) / row["bound_s"] if with_gloo else None


@contextlib.contextmanager
def aggregator(star: Star, name: str, mode: str) -> Iterator[str]:
    """An aggregator in the star's switch, as long as the context lasts."""
    with inside(star.switch):
        pid = os.fork()
        if not pid:
            _be_aggregator(star.ports, name, mode)
    try:
        _wait_until_up(name, pid)
        yield name
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 15)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)


def _be_aggregator(ports: list[str], name: str, mode: str) -> None:
    """The child's life; it never returns."""
    code = 1
    try:
        die_with_parent()
        run_daemon(ports, name=name, port=PORT, token="", mode=mode)
        code = 0
    except MltcpError as error:
        print(f"mltcp: error: {error}", file=sys.stderr)
    finally:
        os._exit(code)


def _wait_until_up(name: str, pid: int) -> None:
    deadline = time.monotonic() + _START_S
    while not is_up(name):
        if os.waitpid(pid, os.WNOHANG)[0]:
            raise MltcpError("The aggregator ended at its start; its message is above.")
        if time.monotonic() > deadline:
            raise MltcpError(f"The aggregator did not answer within {_START_S:g} s.")
        time.sleep(0.05)


def run_ranks(star: Star, plan: BenchPlan) -> list[dict[str, Any]]:
    """Run the plan with a rank in each worker's namespace; return the rows that rank 0 prints."""
    ranks = [start_rank(star, rank, plan) for rank in range(len(star.workers))]
    rows: list[dict[str, Any]] = json.loads(collect(ranks)[0].splitlines()[-1])
    return rows


def start_rank(star: Star, rank: int, plan: BenchPlan) -> subprocess.Popen[str]:
    """Start a rank in its namespace, with the environment that torchrun and the user give it."""
    environment = os.environ | {
        "MASTER_ADDR": star.address(0),
        "MASTER_PORT": str(_MASTER_PORT),
        "RANK": str(rank),
        "WORLD_SIZE": str(len(star.workers)),
        "GLOO_SOCKET_IFNAME": WORKER_INTERFACE,
        "MLTCP_AGGREGATOR": f"{star.gateway(rank)}:{PORT}",
        "OMP_NUM_THREADS": "1",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
    }
    with inside(star.workers[rank]):
        return subprocess.Popen(
            module_command("mltcp_tools.lab.collectives.bench", json.dumps(asdict(plan))),
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=die_with_parent,
        )


def collect(ranks: Sequence[subprocess.Popen[str]]) -> list[str]:
    """Return the output of each rank, when all have ended; MltcpError with the first one's last
    words.

    On every way out the ranks have ended.
    """
    outputs: list[tuple[str, str]] = [("", "")] * len(ranks)

    def read(number: int) -> None:
        outputs[number] = ranks[number].communicate()

    threads = [threading.Thread(target=read, args=(number,)) for number in range(len(ranks))]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    for number, process in enumerate(ranks):
        if process.returncode:
            words = outputs[number][1].strip().splitlines() or ["no word"]
            raise MltcpError(f"Rank {number} ended with code {process.returncode}: {words[-1]}")
    return [out for out, _ in outputs]
