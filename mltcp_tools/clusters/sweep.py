"""Many runs, over processes of this machine or over Ray; what is done isn't done again.

A sweep is a folder with one JSON file per run, named after what makes it; a sweep that is started
again does what is missing. A worker that dies costs the run it had, which is tried again.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from mltcp_tools.clusters.pairs import Pairs
from mltcp_tools.clusters.policies import policy
from mltcp_tools.clusters.rules import treatment
from mltcp_tools.clusters.simulate import ClusterSimulator
from mltcp_tools.clusters.version import version
from mltcp_tools.clusters.workload import parse_workload
from mltcp_tools.errors import MltcpError, UsageError

TRIES = 3


@dataclass(frozen=True)
class Task:
    """One run: a workload's name and YAML text, a policy and a treatment by name.

    pairs: how jobs that share GPUs slow each other down; None: none may. They travel with the task,
    as workers on other machines have no file of ours.
    """

    workload: str
    text: str
    policy: str
    treatment: str
    seed: int
    pairs: Pairs | None = None

    @property
    def key(self) -> str:
        """A name for its file that says what makes it, the version that runs it included."""
        words = [
            version("matrix"),
            self.workload,
            self.text,
            self.policy,
            self.treatment,
            self.seed,
        ]
        digest = hashlib.sha256(json.dumps(words).encode())
        if self.pairs is not None:
            digest.update(self.pairs.digest.encode())
        return (
            f"{self.workload}-{self.policy}-{self.treatment}-{self.seed}-{digest.hexdigest()[:12]}"
        )


def perform(task: Task) -> dict[str, Any]:
    """The run's summary, and every job's completion time and slow-down."""
    workload = replace(parse_workload(task.text, task.workload), pairs=task.pairs)
    scheduler = policy(task.policy, task.seed)
    outcome = ClusterSimulator(workload, scheduler, treatment(task.treatment)).run()
    return {
        "workload": task.workload,
        **outcome.summary(),
        "seed": task.seed,
        "completion_s": [job.completion_s for job in outcome.jobs],
        "slowdown": [job.slowdown for job in outcome.jobs],
    }


def sweep(
    tasks: Sequence[Task],
    folder: Path,
    executor: str = "processes",
    workers: int | None = None,
    said: Callable[[int], None] = lambda done: None,
) -> list[dict[str, Any]]:
    """The tasks' results in their order.

    executor: `processes`, or `ray` and `ray:ADDRESS`. workers: processes, the usable CPUs if None.
    said: hears how many are done. Raises MltcpError for a run that fails TRIES times.
    """
    folder.mkdir(parents=True, exist_ok=True)
    found = {task.key: folder / f"{task.key}.json" for task in tasks}
    left = [task for task in tasks if not found[task.key].is_file()]
    done = len(tasks) - len(left)
    said(done)
    for task, result in _results(left, executor, workers):
        # A file is there whole or not at all, whenever this is killed.
        part = found[task.key].with_suffix(".part")
        part.write_text(json.dumps(result), encoding="utf-8")
        part.replace(found[task.key])
        done += 1
        said(done)
    return [json.loads(found[task.key].read_text(encoding="utf-8")) for task in tasks]


def _results(
    tasks: list[Task], executor: str, workers: int | None
) -> Iterator[tuple[Task, dict[str, Any]]]:
    kind, _, address = executor.partition(":")
    if kind == "processes" and not address:
        return _over_processes(tasks, workers or len(os.sched_getaffinity(0)))
    if kind == "ray":
        return _over_ray(tasks, address)
    raise UsageError(f"{executor!r} is not an executor; write processes, ray or ray:ADDRESS.")


def _over_processes(tasks: list[Task], workers: int) -> Iterator[tuple[Task, dict[str, Any]]]:
    tries: dict[str, int] = {}
    left = {task.key: task for task in tasks}
    while left:
        with ProcessPoolExecutor(min(workers, len(left))) as pool:
            futures: dict[Future[dict[str, Any]], Task] = {}
            # Few at a time: a worker that dies takes down all that were handed over.
            waiting = iter(list(left.values()))
            for task in islice(waiting, 2 * workers):
                futures[pool.submit(perform, task)] = task
            try:
                while futures:
                    future = next(as_completed(futures))
                    task = futures[future]
                    result = future.result()
                    del futures[future], left[task.key]
                    yield task, result
                    following = next(waiting, None)
                    if following is not None:
                        futures[pool.submit(perform, following)] = following
            except BrokenProcessPool:
                for task in futures.values():
                    tries[task.key] = tries.get(task.key, 0) + 1
                    if tries[task.key] >= TRIES:
                        raise MltcpError(
                            f"The run {task.key} was under way {TRIES} times when a worker died;"
                            " look for what kills it, memory for one, and start again."
                        ) from None


def _over_ray(tasks: list[Task], address: str) -> Iterator[tuple[Task, dict[str, Any]]]:
    ray: Any = importlib.import_module("ray")
    ray.init(address=address or None, ignore_reinit_error=True, log_to_driver=False)
    remote = ray.remote(max_retries=TRIES)(perform)
    try:
        waiting = iter(tasks)
        room = 4 * int(ray.cluster_resources().get("CPU", 1))
        under_way = {remote.remote(task): task for task in islice(waiting, room)}
        while under_way:
            (ready,), _ = ray.wait(list(under_way), num_returns=1)
            task = under_way.pop(ready)
            yield task, ray.get(ready)
            following = next(waiting, None)
            if following is not None:
                under_way[remote.remote(following)] = following
    finally:
        if not address:
            ray.shutdown()
