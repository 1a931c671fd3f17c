# SPDX-License-Identifier: BSD-2-Clause
"""The order in which an experiment's variants run, and each variant's tasks: jobs and neighbours as
tasks.

Testbed and simulator run the same tasks, so both face the same jobs.
"""

from __future__ import annotations

from dataclasses import dataclass

from mltcp_tools.lab.emulator.job import JobSpec
from mltcp_tools.lab.experiments.experiment import Experiment
from mltcp_tools.lab.experiments.neighbours import SAMPLES_MS
from mltcp_tools.lab.experiments.variants import ALONE, Variant


@dataclass(frozen=True)
class ClientTask:
    """One client: its name, the sender (from 0) it runs in, and what it is told to do.

    trace_ms: milliseconds between samples of its sockets, 0 for none.
    """

    name: str
    sender: int
    spec: JobSpec
    trace_ms: int = 0


def schedule(experiment: Experiment) -> list[tuple[int, list[str]]]:
    """The variants of each repetition (from 1), in the order in which they run."""
    names = [variant.name for variant in experiment.variants]
    if experiment.alone_iterations:
        names.insert(0, ALONE)
    order = []
    for repetition in range(experiment.repetitions):
        slot = repetition // 2 % len(names)
        rotated = names[slot:] + names[:slot]
        order.append((repetition + 1, rotated[::-1] if repetition % 2 else rotated))
    return order


def total_iterations(experiment: Experiment) -> int:
    """Iterations of all jobs in all variants and repetitions."""
    variant = sum(experiment.iterations_of(job) for job in experiment.jobs)
    alone = len(experiment.isolated_jobs()) * experiment.alone_iterations
    return experiment.repetitions * (variant * len(experiment.variants) + alone)


def tasks_of(
    experiment: Experiment,
    variant: Variant,
    repetition: int,
    trace_ms: int = 0,
) -> list[list[ClientTask]]:
    """The jobs that run in the variant: all at once, or in `alone` one of each kind after another.

    trace_ms: milliseconds between TCP samples in the first repetition, 0 for none.
    """
    alone = variant.name == ALONE
    tasks = []
    for sender, job in enumerate(experiment.isolated_jobs() if alone else experiment.jobs):
        spec = job.spec(
            iterations=experiment.alone_iterations if alone else experiment.iterations_of(job),
            seed=experiment.job_seed(repetition, job),
            start_delay=0.0 if alone else experiment.start_delay(repetition, job),
            cc=variant.cc,
        )
        trace = trace_ms if repetition == 1 else 0
        # Alone all may come from one sender, unless each has its own path.
        own = experiment.jobs.index(job) if experiment.links else 0 if alone else sender
        tasks.append(ClientTask(job.name, own, spec, trace))
    return [[task] for task in tasks] if alone else [tasks]


def neighbour_tasks(experiment: Experiment, variant: Variant, repetition: int) -> list[ClientTask]:
    """The neighbours that run in the variant, behind the jobs' senders; none in `alone`."""
    tasks: list[ClientTask] = []
    for sender, each in enumerate(experiment.neighbours, len(experiment.jobs)):
        spec = each.spec(
            cc=each.cc_in(variant.cc), seed=experiment.neighbour_seed(repetition, each)
        )
        tasks.append(ClientTask(each.name, sender, spec, SAMPLES_MS if each.size is None else 0))
    return [] if variant.name == ALONE else tasks
