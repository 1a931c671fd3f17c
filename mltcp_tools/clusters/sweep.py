# SPDX-License-Identifier: BSD-2-Clause
"""Many runs, over processes of this machine or over Ray."""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

from mltcp_tools.base.errors import MltcpError, UsageError
from mltcp_tools.clusters.outcome import Outcome
from mltcp_tools.clusters.policies import policy
from mltcp_tools.clusters.rules import treatment
from mltcp_tools.clusters.simulate import ClusterSimulator
from mltcp_tools.clusters.workload import Workload

EVERY_S = 10.0
"""Seconds between reports of a long run."""
RETRIES = 3
"""Of a run whose worker died, by Ray."""


@dataclass(frozen=True)
class Task:
    """One run. pace: by how much the workload is shorter than it was, so that rounds are, too."""

    workload: Workload
    policy: str
    treatment: str
    pace: float = 1.0


def perform(task: Task) -> Outcome:
    """The run's outcome; how far it is goes to stderr every EVERY_S."""
    scheduler = policy(task.policy, task.workload.seed, task.pace)
    last_s = begun_s = time.monotonic()

    def said(done: int) -> None:
        nonlocal last_s
        now_s = time.monotonic()
        if now_s - last_s >= EVERY_S:
            last_s = now_s
            print(
                f"{task.policy}, {task.treatment}, seed {task.workload.seed}: {done} of"
                f" {len(task.workload.jobs)} jobs done after {now_s - begun_s:.0f} s",
                file=sys.stderr,
                flush=True,
            )

    how = treatment(task.treatment)
    return ClusterSimulator(task.workload, scheduler, how, said=said).run()


def sweep(tasks: Sequence[Task], executor: str = "processes") -> Iterator[tuple[int, Outcome]]:
    """Places of tasks, and their outcomes as soon as they are there.

    executor: `processes`, one for each usable CPU, or `ray` and `ray:ADDRESS`. Raises MltcpError
    where a worker dies, over Ray where that happens again and again.
    """
    kind, _, address = executor.partition(":")
    if kind == "processes" and not address:
        return _over_processes(tasks)
    if kind == "ray":
        return _over_ray(tasks, address)
    raise UsageError(f"{executor!r} is not an executor; write processes, ray or ray:ADDRESS.")


def _over_processes(tasks: Sequence[Task]) -> Iterator[tuple[int, Outcome]]:
    workers = min(len(tasks), len(os.sched_getaffinity(0)))
    if workers == 1:
        yield from ((place, perform(task)) for place, task in enumerate(tasks))
        return
    # A fork of a process with threads may hang.
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        places = {pool.submit(perform, task): place for place, task in enumerate(tasks)}
        try:
            for future in as_completed(places):
                yield places[future], future.result()
        except BrokenProcessPool:
            raise MltcpError(
                "a worker died; look for what kills it, memory for one, and start again."
            ) from None
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _over_ray(tasks: Sequence[Task], address: str) -> Iterator[tuple[int, Outcome]]:
    ray: Any = importlib.import_module("ray")
    ray.init(address=address or None, ignore_reinit_error=True, log_to_driver=False)
    remote = ray.remote(max_retries=RETRIES)(perform)
    try:
        under_way = {remote.remote(task): place for place, task in enumerate(tasks)}
        while under_way:
            (ready,), _ = ray.wait(list(under_way), num_returns=1)
            yield under_way.pop(ready), ray.get(ready)
    finally:
        if not address:
            ray.shutdown()
