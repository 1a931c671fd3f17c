# SPDX-License-Identifier: BSD-2-Clause
"""Many runs, one after another or over Ray."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from mltcp_tools.clusters.outcome import Outcome
from mltcp_tools.clusters.policies import policy
from mltcp_tools.clusters.rules import treatment
from mltcp_tools.clusters.simulate import ClusterSimulator
from mltcp_tools.clusters.workload import Workload


@dataclass(frozen=True)
class Task:
    """One run."""

    workload: Workload
    policy: str
    treatment: str


def perform(task: Task) -> Outcome:
    """The run's outcome."""
    scheduler = policy(task.policy, task.workload.seed)
    return ClusterSimulator(task.workload, scheduler, treatment(task.treatment)).run()


def sweep(tasks: Sequence[Task], address: str | None = None) -> Iterator[tuple[int, Outcome]]:
    """Places of tasks, and their outcomes as soon as they are there: one after another, or over the
    Ray cluster at an address; `local` starts one on this machine. Raises ray's errors where a
    worker dies again and again.
    """
    if address is None:
        yield from ((place, perform(task)) for place, task in enumerate(tasks))
        return
    ray: Any = importlib.import_module("ray")
    ray.init(
        address=None if address == "local" else address,
        ignore_reinit_error=True,
        log_to_driver=False,
    )
    remote = ray.remote(perform)
    try:
        under_way = {remote.remote(task): place for place, task in enumerate(tasks)}
        while under_way:
            (ready,), _ = ray.wait(list(under_way), num_returns=1)
            yield under_way.pop(ready), ray.get(ready)
    finally:
        if address == "local":
            ray.shutdown()
