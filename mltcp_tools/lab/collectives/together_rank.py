"""A rank of a job that computes and reduces, over and over: what `together` runs in namespaces.

Its environment is torchrun's; its argument is a Work as JSON. Rank 0 prints a line of JSON per
iteration.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from mltcp_tools.collectives.collective import Setting
from mltcp_tools.collectives.group import Group
from mltcp_tools.collectives.library import How
from mltcp_tools.collectives.reducer import Reducer
from mltcp_tools.collectives.registry import COLLECTIVES
from mltcp_tools.collectives.session import Endpoint
from mltcp_tools.kernel.variants import is_mltcp
from mltcp_tools.lab.collectives.bench import make_tensor
from mltcp_tools.live.attach.borrow import set_congestion_control

_TIMEOUT_S = 90.0


@dataclass(frozen=True)
class Work:
    """The work of job number `job` of `jobs`.

    compute_s: mean, of each iteration; jitter: its standard deviation's share. density: share of
    the tensor's blocks that aren't zero. congestion_control: of its connections; under one of
    MLTCP's the worker's window grows by F, too. folder: where jobs await each other.
    """

    job: int
    jobs: int
    algorithm: str
    bytes: int
    density: float
    compute_s: float
    jitter: float
    iterations: int
    seed: int
    congestion_control: str
    aggregator: str
    folder: str


def make_reducer(work: Work) -> Reducer:
    """Return the algorithm's reducer; SystemExit where it isn't available."""
    setting = Setting(
        Group(None, _TIMEOUT_S),
        endpoint=Endpoint.parse(work.aggregator),
        mltcp=is_mltcp(work.congestion_control),
        congestion_control=work.congestion_control,
    )
    reducer = Reducer(COLLECTIVES[work.algorithm], setting)
    if reducer.why_gloo:
        raise SystemExit(reducer.why_gloo)
    return reducer


def switch_connections(name: str) -> int:
    """Give all TCP connections of this process the congestion control; how many these are."""
    switched = 0
    for entry in list(Path("/proc/self/fd").iterdir()):
        with suppress(OSError), socket.socket(fileno=os.dup(int(entry.name))) as connection:
            connection.getpeername()
            if connection.family == socket.AF_INET and connection.type == socket.SOCK_STREAM:
                set_congestion_control(connection, name)
                switched += 1
    return switched


def wait_for_others(folder: Path, job: int) -> float:
    """The time at which all jobs begin, once rank 0 of each has said that it is ready."""
    (folder / f"ready-{job}").touch()
    while not (folder / "go").exists():
        time.sleep(0.02)
    return float((folder / "go").read_text())


def main() -> None:
    """Warm up, wait for the other jobs, then compute and reduce."""
    work = Work(**json.loads(sys.argv[1]))
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    reducer = make_reducer(work)
    gradient = make_tensor(rank, work.bytes, work.density)
    for _ in range(2):  # opens the connections; sparse ones learn their density
        reducer.all_reduce(gradient.clone(), How.SUM).wait()
    switch_connections(work.congestion_control)
    told: list[float] = [0.0]
    if rank == 0:
        told = [wait_for_others(Path(work.folder), work.job)]
    dist.broadcast_object_list(told, 0)
    draws = np.random.default_rng([work.seed, work.job])
    time.sleep(max(0.0, told[0] - time.monotonic()) + draws.uniform(0, work.compute_s))
    for iteration in range(1, work.iterations + 1):
        start_s = time.monotonic()
        compute_s = work.compute_s * max(0.1, 1 + work.jitter * draws.standard_normal())
        time.sleep(compute_s)
        tensor = gradient.clone()
        reducer.begin_iteration()
        ready_s = time.monotonic()
        reducer.all_reduce(tensor, How.SUM).wait()
        end_s = time.monotonic()
        if rank == 0:
            row = {"iteration": iteration, "start_s": start_s - told[0], "end_s": end_s - told[0]}
            row |= {"compute_s": ready_s - start_s, "comm_s": end_s - ready_s}
            print(json.dumps(row), flush=True)
    dist.barrier()
    if rank == 0:
        (Path(work.folder) / f"done-{work.job}").touch()
    while len(list(Path(work.folder).glob("done-*"))) < work.jobs:
        time.sleep(0.05)  # to end takes the processor away from jobs that still run
    reducer.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
