# SPDX-License-Identifier: BSD-2-Clause
"""Simulating an experiment into a run folder, with the tables that the testbed writes."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mltcp_tools.base.run_tables import check_folder
from mltcp_tools.kernel.environment import RunEnvironment
from mltcp_tools.lab.experiments.experiment import Experiment
from mltcp_tools.lab.experiments.tasks import schedule, total_iterations
from mltcp_tools.lab.experiments.variants import ALONE
from mltcp_tools.lab.runs.progress import ProgressBar
from mltcp_tools.lab.runs.recorder import Tables
from mltcp_tools.lab.simulator.library import StopFlag
from mltcp_tools.lab.simulator.treatments import SimulatedTreatments
from mltcp_tools.lab.simulator.variants import (
    SimulatedVariant,
    SimulationSettings,
    simulate_variant,
)


def simulate_experiment(
    experiment: Experiment,
    folder: Path,
    settings: SimulationSettings = SimulationSettings(trace_ms=2),  # noqa: B008 - frozen
) -> None:
    """Simulate `experiment`, as `modelled` gives it, into `folder`, which must be new or empty.

    Variants run on all CPUs at once; what comes of it doesn't depend on that. Talks on stderr.
    """
    check_folder(folder)
    treatments = SimulatedTreatments(experiment, experiment.variants)
    treatments.check()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "experiment.yaml").write_text(experiment.to_yaml(), encoding="utf-8")
    environment = RunEnvironment(folder)
    environment.add(
        simulated=True,
        mtu=settings.mtu,
        join_s=settings.join_s,
        rtt_s=settings.rtt_s,
        bucket=settings.bucket,
    )
    outcome = "interrupted"
    try:
        _simulate(experiment, folder, settings, treatments)
        outcome = "finished"
    except Exception as error:
        outcome = str(error)
        raise
    finally:
        environment.finish(outcome)


def _simulate(
    experiment: Experiment,
    folder: Path,
    settings: SimulationSettings,
    treatments: SimulatedTreatments,
) -> None:
    tables = Tables()
    # The library runs without Python's lock, so threads are enough.
    pool = ThreadPoolExecutor(len(os.sched_getaffinity(0)))
    stop = StopFlag()
    if treatments.wait_for_alone:
        _run_alone(experiment, folder, settings)
        treatments.alone_ran(folder)

    def run(name: str, repetition: int) -> SimulatedVariant:
        return simulate_variant(
            experiment, experiment.variant(name), repetition, settings, stop, treatments=treatments
        )

    try:
        runs = [
            ((name, repetition, position), pool.submit(run, name, repetition))
            for repetition, names in schedule(experiment)
            for position, name in enumerate(names, 1)
        ]
        with ProgressBar(total_iterations(experiment)) as progress:
            for key, future in runs:
                done = future.result()
                _add(tables, key, done)
                for task, document in done.documents:
                    progress.iteration(task.name, len(document["iterations"]))
    finally:
        stop.set()  # all are done, unless something ended them early
        pool.shutdown(cancel_futures=True)
    tables.write(folder)


def _run_alone(experiment: Experiment, folder: Path, settings: SimulationSettings) -> None:
    """Write what the jobs do alone in the first repetition into the folder."""
    tables = Tables()
    _add(
        tables, (ALONE, 1, 1), simulate_variant(experiment, experiment.variant(ALONE), 1, settings)
    )
    tables.write(folder)


def _add(tables: Tables, key: tuple[str, int, int], done: SimulatedVariant) -> None:
    variant, repetition, position = key
    for task, document in done.documents:
        tables.add_job(variant, repetition, 0.0, task, document)
    for task, document in done.neighbours:
        tables.add_neighbour(variant, repetition, 0.0, task, document)
    documents = {task.name: document for task, document in done.documents}
    tables.add_events(variant, repetition, 0.0, done.events, documents)
    tables.add_variant(variant, repetition, position, done.duration, done.counters)
