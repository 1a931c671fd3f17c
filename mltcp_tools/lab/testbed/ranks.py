# SPDX-License-Identifier: BSD-2-Clause
"""The emulator processes of jobs with patterns: one per rank, each on its host of a fabric."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from mltcp_tools.lab.emulator.patterns import connections
from mltcp_tools.lab.experiments.experiment import Experiment
from mltcp_tools.lab.experiments.tasks import ClientTask
from mltcp_tools.lab.testbed.emulators import (
    PORT,
    READY_S,
    EarlyEnd,
    Emulator,
    EmulatorHosts,
    Emulators,
    job_message,
)
from mltcp_tools.lab.testbed.fabric import FabricNetwork


class Ranks(Emulators):
    """Runs tasks of jobs with patterns on a fabric's hosts; otherwise as `Emulators`.

    `prepare` gets a job's sockets in the order of its connections (`patterns.connections`).
    """

    def __init__(
        self,
        network: FabricNetwork,
        experiment: Experiment,
        repetition: int,
        interrupts: EarlyEnd,
        *,
        prepare: Callable[[ClientTask, Sequence[int]], None],
        on_iteration: Callable[[str], None],
    ) -> None:
        place = EmulatorHosts(network.senders, None, "", served=True)
        super().__init__(place, interrupts, prepare=prepare, on_iteration=on_iteration)
        self._network = network
        self._experiment = experiment
        self._repetition = repetition

    def _launch(self, tasks: Sequence[ClientTask]) -> None:
        for task in tasks:
            job = self._experiment.job(task.name)
            # Jobs that share a host listen on ports of their own.
            port = PORT + self._experiment.jobs.index(job)
            group: list[Emulator] = []
            self._groups.append(group)
            for rank, host in enumerate(job.hosts):
                name = task.name if rank == 0 else f"{task.name}, rank {rank}"
                namespace = self._network.host(host)
                group.append(self._start(name, namespace, ["rank", f"--job={task.name}"]))
                routes = self._routes(task, rank, port)
                message = job_message(task, rank=rank, port=port, routes=routes)
                group[-1].control.send(message)
        everybody = self._everybody()
        self._await(everybody, "listening", READY_S)
        for each in everybody:
            each.control.send(b'{"event": "connect"}')
        self._await(everybody, "connected", READY_S)

    def _routes(self, task: ClientTask, rank: int, port: int) -> dict[int, dict[str, Any]]:
        """Of each connection that begins at the rank; its ends' addresses say the spines."""
        job, network = self._experiment.job(task.name), self._network
        routes = {}
        for number, connection in enumerate(_connections(task)):
            source, destination, _ = connection
            if source == rank:
                ahead, back = self._experiment.spines_of(self._repetition, job, connection)
                routes[number] = {
                    "source": network.address(job.hosts[source], back),
                    "destination": network.address(job.hosts[destination], ahead),
                    "port": port,
                }
        return routes

    @contextlib.contextmanager
    def _sending_sockets(self, task: ClientTask, group: Sequence[Emulator]) -> Iterator[list[int]]:
        left = [iter(each.flows) for each in group]
        yield [next(left[rank]) for rank, _, _ in _connections(task)]

    def _whole(self, task: ClientTask, documents: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return merged(documents)


def _connections(task: ClientTask) -> tuple[tuple[int, int, int], ...]:
    pattern = task.spec.pattern
    assert pattern is not None
    return connections(pattern.tasks(task.spec.bytes_per_iteration, task.spec.flows))


def merged(documents: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The document of a job from those of its ranks, rank 0's first.

    An iteration lasts from the end of the one before until the last rank is done. Its one burst
    begins with the first message of any rank; `compute` is what lies before that. Only iterations
    that all ranks have completed count.
    """
    whole = documents[0] | {"iterations": [], "samples": []}
    began = min(
        (each["iterations"][0]["start"] for each in documents if each["iterations"]), default=0.0
    )
    for ranks in zip(*(each["iterations"] for each in documents), strict=False):
        end = max(each["end"] for each in ranks)
        bursts = [each["bursts"][0] for each in ranks]
        # A rank may send before the slowest one is done with the iteration before.
        first = max(began, min(each["start"] for each in bursts))
        first_end = max(first, min(each["first_end"] for each in bursts))
        size = sum(each["bytes"] for each in bursts)
        burst = {"burst": 1, "start": first, "end": end, "bytes": size, "first_end": first_end}
        whole["iterations"].append(
            {
                "iteration": ranks[0]["iteration"],
                "start": began,
                "end": end,
                "compute": first - began,
                "bytes": size,
                "bursts": [burst],
            }
        )
        began = end
    for each in documents:
        whole["samples"] += each["samples"]
    return whole
