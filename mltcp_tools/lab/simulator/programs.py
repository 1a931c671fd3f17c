# SPDX-License-Identifier: BSD-2-Clause
"""Jobs of a fabric, as the packet simulator and the schedules take them.

Every connection has a path over a spine of its own, drawn from the experiment's seed: the same for
all variants of a repetition, on the testbed, too. ACKs come back over one that their own hash
chooses.
"""

from __future__ import annotations

from collections.abc import Hashable

from mltcp_tools.lab.emulator.job import compute_times
from mltcp_tools.lab.emulator.patterns import connections
from mltcp_tools.lab.experiments.experiment import Experiment
from mltcp_tools.lab.experiments.tasks import ClientTask, tasks_of
from mltcp_tools.lab.simulator.inputs import Program
from mltcp_tools.lab.simulator.rank_schedules import RankedJob

HOPS = 4
"""Links between two hosts in different racks: between these, the empty round trip is that of a
single link elsewhere."""


def program_of(experiment: Experiment, repetition: int, task: ClientTask) -> Program | None:
    """The job's tasks and its connections' paths; None where it has no pattern.

    Links are numbered as the experiment has them, first all upwards, then all downwards.
    """
    fabric, pattern, job = experiment.fabric, task.spec.pattern, experiment.job(task.name)
    if fabric is None or pattern is None:
        return None
    steps = pattern.tasks(task.spec.bytes_per_iteration, task.spec.flows)
    number = {name: n for n, name in enumerate(experiment.links)}

    def route(source: int, destination: int, spine: int) -> tuple[int, ...]:
        path = fabric.path(job.hosts[source], job.hosts[destination], spine)
        return tuple(number[way.link] + (0 if way.up else len(number)) for way in path)

    paths = []
    for connection in connections(steps):
        ahead, back = experiment.spines_of(repetition, job, connection)
        rank, to, _ = connection
        paths.append((route(rank, to, ahead), route(to, rank, back)))
    every = fabric.host_names()
    return Program(pattern.ranks, steps, paths, [every.index(host) for host in job.hosts])


def ranked_jobs(
    experiment: Experiment, repetition: int, payload: float, rtt_s: float
) -> tuple[list[RankedJob], dict[Hashable, float]]:
    """The jobs of a repetition for the schedules, and what each link carries, bytes per second.

    payload: share of a link's bytes that is. rtt_s: of an empty path over HOPS links.
    """
    jobs = []
    for task in tasks_of(experiment, experiment.variant(experiment.baseline), repetition)[0]:
        program = program_of(experiment, repetition, task)
        assert program is not None
        paths = [ahead for ahead, _ in program.paths]
        jobs.append(
            RankedJob(
                name=task.name,
                start_s=task.spec.start_delay_s,
                compute_s=list(compute_times(task.spec)),
                tasks=program.tasks,
                paths=paths,
                latencies_s=[len(path) * rtt_s / HOPS / 2 for path in paths],
            )
        )
    rates = [link.rate * payload / 8 for link in experiment.links.values()] * 2
    return jobs, dict(enumerate(rates))
