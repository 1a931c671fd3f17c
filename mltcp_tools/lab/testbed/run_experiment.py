# SPDX-License-Identifier: BSD-2-Clause
"""Running an experiment: variants one after another (loop.py) on fresh links, into a run folder."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Sequence
from pathlib import Path

from mltcp_tools.base.errors import BusyError, HostError, UsageError
from mltcp_tools.base.run_tables import check_folder
from mltcp_tools.kernel.backends import AUTO
from mltcp_tools.kernel.backends.pins import skipped_results
from mltcp_tools.kernel.congestion_controls import is_mltcp
from mltcp_tools.kernel.environment import sysctls
from mltcp_tools.kernel.host.disturbance import DisturbanceWatch
from mltcp_tools.kernel.host.signals import Signals
from mltcp_tools.lab.emulator.sockets import set_congestion_control
from mltcp_tools.lab.experiments.experiment import Experiment
from mltcp_tools.lab.experiments.tasks import (
    ClientTask,
    neighbour_tasks,
    tasks_of,
    total_iterations,
)
from mltcp_tools.lab.experiments.variants import Variant
from mltcp_tools.lab.runs.progress import ProgressBar
from mltcp_tools.lab.testbed.emulators import EmulatorHosts, Emulators, MeasuredJobs
from mltcp_tools.lab.testbed.fabric import FabricNetwork
from mltcp_tools.lab.testbed.leftovers import (
    LOCKS,
    RunLock,
    other_runs,
    remove_leftovers,
    require_privileges,
)
from mltcp_tools.lab.testbed.loop import Loop, VariantOutcome
from mltcp_tools.lab.testbed.namespaces import inside
from mltcp_tools.lab.testbed.network import RECEIVER_ADDRESS, Dumbbell
from mltcp_tools.lab.testbed.paths import ANY_ADDRESS, Paths
from mltcp_tools.lab.testbed.ranks import Ranks
from mltcp_tools.lab.testbed.treatments import Sessions, Treatments, check_treatments
from mltcp_tools.lab.testbed.treatments.base import Context

MAX_TBF_RATE_BPS = 30_000_000_000
"""tbf counts its rate in 32 bits of bytes per second."""


def run_experiment(
    experiment: Experiment,
    folder: Path,
    trace_ms: int = 2,
    backend: str = AUTO,
    attempts: int = 1,
) -> None:
    """Run `experiment` and write its tables into `folder`, which must be new or empty.

    trace_ms: milliseconds between TCP samples in the first repetition, 0 for none.
    backend: what runs the MLTCP variants, as `get_backend` takes it. attempts: how often a variant
    is run at most until nothing disturbs it. Talks on stderr.
    Raises what ended the run early (MltcpError, or KeyboardInterrupt after a signal), with the
    tables of what was measured until then written and everything else taken down.
    """
    require_privileges()
    check_treatments(experiment)
    check_rates(experiment)
    check_congestion_controls(experiment)
    check_folder(folder)
    with (
        Signals() as interrupts,
        RunLock() as lock,
        ProgressBar(total_iterations(experiment)) as progress,
    ):
        try:
            for removed in remove_leftovers():
                progress.say(f"removed {removed}, left by a run that was killed")
        except BusyError as error:
            progress.say(f"warning: {error}")
        if others := other_runs(lock.id):
            progress.say(
                f"warning: another run is active on this host (process {', '.join(others)}), and"
                " the two disturb each other"
            )
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "experiment.yaml").write_text(experiment.to_yaml(), encoding="utf-8")
        _Run(experiment, folder, trace_ms, backend, attempts, interrupts, lock, progress).run()


class _Run(Loop):
    """The variants of a run in network namespaces of this machine."""

    busiest = "CPUs"

    def __init__(
        self,
        experiment: Experiment,
        folder: Path,
        trace_ms: int,
        backend: str,
        attempts: int,
        interrupts: Signals,
        lock: RunLock,
        progress: ProgressBar,
    ) -> None:
        super().__init__(experiment, folder, interrupts, progress, attempts)
        self._trace_ms = trace_ms
        self._lock = lock
        self._treatments = Treatments(
            Context(
                experiment,
                folder,
                backend,
                LOCKS,
                lambda: lock.id,
                lock.job_id,
                progress.say,
                self.warn,
                lambda facts: self.environment.add(**facts),
            )
        )

    def load(self, stack: contextlib.ExitStack) -> None:
        self._treatments.load(stack)

    def alone_ran(self) -> None:
        self._treatments.alone_ran()

    def measure(self, variant: Variant, repetition: int, position: int) -> VariantOutcome:
        groups = tasks_of(self.experiment, variant, repetition, self._trace_ms)
        neighbours = neighbour_tasks(self.experiment, variant, repetition)
        measured: list[MeasuredJobs] = []
        with (
            DisturbanceWatch(skipped_results) as watch,
            self._network(len(groups[0]) + len(neighbours)) as network,
        ):
            if repetition == position == 1:
                self._describe(network)
            with self._treatments.begin(variant) as sessions:
                sessions.network(network)
                groups = [[sessions.adapt(task) for task in tasks] for tasks in groups]
                for tasks in groups:
                    measured.append(
                        self._run_tasks(network, tasks, neighbours, sessions, repetition)
                    )
                    if measured[-1].failure is not None:
                        break
            counters = network.counters()
        start = measured[0].start
        for tasks, part in zip(groups, measured, strict=False):
            for task in tasks:
                if document := part.documents.get(task.name):
                    self.tables.add_job(variant.name, repetition, start, task, document)
            for task in neighbours:
                if document := part.documents.get(task.name):
                    self.tables.add_neighbour(variant.name, repetition, start, task, document)
        documents = {job: each for part in measured for job, each in part.documents.items()}
        self.tables.add_events(variant.name, repetition, start, sessions.events, documents)
        sessions.record(self.folder, repetition, start)
        busy_s = sum(part.cpu_busy * part.duration for part in measured)
        spans = [(part.start, part.start + part.duration) for part in measured]
        self.attempts.judge(watch, spans)
        return VariantOutcome(
            duration=measured[-1].start + measured[-1].duration - start,
            counters=counters,
            cpu_busy=busy_s / (sum(part.duration for part in measured) or 1.0),
            failure=measured[-1].failure,
            warnings=sessions.warnings,
        )

    def _network(self, senders: int) -> Dumbbell | Paths | FabricNetwork:
        experiment, run_id = self.experiment, self._lock.id
        if experiment.fabric is not None:
            return FabricNetwork(run_id, experiment.fabric, experiment.sysctls)
        if not experiment.links:
            both_ways = any(job.direction == "both" for job in experiment.jobs)
            return Dumbbell(run_id, experiment.link, experiment.sysctls, senders, both_ways)
        paths = [job.links for job in experiment.jobs]
        paths += [each.links for each in experiment.neighbours]
        return Paths(run_id, experiment.links, experiment.sysctls, paths)

    def _run_tasks(
        self,
        network: Dumbbell | Paths | FabricNetwork,
        tasks: Sequence[ClientTask],
        neighbours: Sequence[ClientTask],
        sessions: Sessions,
        repetition: int,
    ) -> MeasuredJobs:
        def count(name: str) -> None:
            if any(task.name == name for task in tasks):
                self.progress.iteration(name)

        if isinstance(network, FabricNetwork):
            with Ranks(
                *(network, self.experiment, repetition, self.interrupts),
                prepare=sessions.connected,
                on_iteration=count,
            ) as ranks:
                return ranks.run(tasks)
        place = EmulatorHosts(network.senders, network.receiver, RECEIVER_ADDRESS)
        if isinstance(network, Paths):
            place = EmulatorHosts(
                network.senders, network.receiver, ANY_ADDRESS, reached_at=network.addresses
            )
        with Emulators(
            place, self.interrupts, prepare=sessions.connected, on_iteration=count
        ) as emulators:
            return emulators.run(tasks, neighbours)

    def _describe(self, network: Dumbbell | Paths | FabricNetwork) -> None:
        with inside(network.senders[0]):
            here = sysctls()
        self.environment.add(network=network.read_back(), namespace_sysctls=here)


def check_rates(experiment: Experiment) -> None:
    """Raise UsageError where a link is faster than the testbed's can be."""
    for link in experiment.links.values() or [experiment.link]:
        if link.rate > MAX_TBF_RATE_BPS:
            raise UsageError(
                f"experiment {experiment.name} has a link of {link.rate / 1e9:g} Gbit/s, and the"
                f" testbed's links carry at most {MAX_TBF_RATE_BPS / 1e9:g}; use `mltcp simulate`."
            )


def check_congestion_controls(experiment: Experiment) -> None:
    """Raise HostError where the kernel lacks a congestion control that isn't one of MLTCP's.

    A socket that asks for it makes the kernel load its module first.
    """
    for cc, asked_by in experiment.congestion_controls().items():
        if is_mltcp(cc):
            continue
        with socket.socket() as probe:
            try:
                set_congestion_control(probe, cc)
            except HostError as error:
                remedy = (
                    "leave it out with --variants"
                    if asked_by.startswith("variant ")
                    else "give it another `cc`"
                )
                raise HostError(f"The {asked_by} can't be run; {remedy}. {error}") from error
