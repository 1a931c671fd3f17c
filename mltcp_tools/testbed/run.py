"""Running an experiment: arms one after another on fresh links, into a run folder.

In each repetition every arm runs once, `alone` among them. The order alternates, so that a drift of
the machine falls on all alike: a repetition runs the arms forwards, the next backwards, and each
such pair begins one arm further on. The draws of compute times and starts depend on seed,
repetition and job only, so the arms of a repetition face the same jobs.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Sequence
from pathlib import Path

from mltcp_tools.backends import AUTO
from mltcp_tools.backends.base import Backend
from mltcp_tools.emulator.sockets import set_congestion_control
from mltcp_tools.errors import BusyError, HostError
from mltcp_tools.experiments.arms import ALONE, Arm, is_mltcp
from mltcp_tools.experiments.experiment import Experiment
from mltcp_tools.experiments.plans import Plan, neighbours_of, plans_of, schedule, total_iterations
from mltcp_tools.host.signals import Signals
from mltcp_tools.runs.environment import Environment, sysctls
from mltcp_tools.runs.folder import check_folder
from mltcp_tools.runs.progress import Progress
from mltcp_tools.runs.recorder import Tables
from mltcp_tools.testbed.backend import ArmJobs, describe, use_backend
from mltcp_tools.testbed.emulators import Emulators, Measured, Place
from mltcp_tools.testbed.leftovers import (
    LOCKS,
    RunLock,
    remove_leftovers,
    require_privileges,
)
from mltcp_tools.testbed.namespaces import inside
from mltcp_tools.testbed.network import RECEIVER_ADDRESS, Network
from mltcp_tools.testbed.paths import ANY_ADDRESS, Paths
from mltcp_tools.testbed.planned import ArmPlan, check_plans, plan_arms, write_plans

CPU_SUSPECT = 0.85
"""Share of all CPUs' time above which an arm's result says more of the machine than of the link."""


def run_experiment(
    experiment: Experiment, folder: Path, trace_ms: int = 2, backend: str = AUTO
) -> None:
    """Run `experiment` and write its tables into `folder`, which must be new or empty.

    trace_ms: milliseconds between TCP samples in the first repetition, 0 for none.
    backend: what runs the MLTCP arms, as `get_backend` takes it. Talks on stderr.
    Raises what ended the run early (MltcpError, or KeyboardInterrupt after a signal), with the
    tables of what was measured until then written and everything else taken down.
    """
    require_privileges()
    check_plans(experiment)
    check_congestion_controls(experiment)
    check_folder(folder)
    with (
        Signals() as interrupts,
        RunLock() as lock,
        Progress(total_iterations(experiment)) as progress,
    ):
        try:
            for removed in remove_leftovers():
                progress.say(f"removed {removed}, left by a run that was killed")
        except BusyError as error:
            progress.say(f"warning: {error}")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "experiment.yaml").write_text(experiment.to_yaml(), encoding="utf-8")
        _Run(experiment, folder, trace_ms, backend, interrupts, lock, progress).run()


class _Run:
    """The arms of a run, and what they share."""

    def __init__(
        self,
        experiment: Experiment,
        folder: Path,
        trace_ms: int,
        backend: str,
        interrupts: Signals,
        lock: RunLock,
        progress: Progress,
    ) -> None:
        self._experiment = experiment
        self._folder = folder
        self._trace_ms = trace_ms
        self._backend_name = backend
        self._interrupts = interrupts
        self._lock = lock
        self._progress = progress
        self._environment = Environment(folder)
        self._tables = Tables()
        self._backend: Backend | None = None
        self._plans: dict[str, ArmPlan] = {}

    def run(self) -> None:
        """Run everything, and record how it ended."""
        outcome = "finished"
        try:
            self._run_arms()
        except KeyboardInterrupt:
            outcome = "interrupted"
            raise
        except Exception as error:
            outcome = str(error)
            raise
        finally:
            self._environment.finish(outcome)

    def _run_arms(self) -> None:
        order = schedule(self._experiment)
        with contextlib.ExitStack() as stack:
            if ccs := {cc for cc in self._experiment.congestion_controls() if is_mltcp(cc)}:
                self._backend = stack.enter_context(
                    use_backend(LOCKS, ccs, self._warn, self._backend_name)
                )
                self._environment.add(backend=describe(self._backend))
            for repetition, names in order:
                for position, name in enumerate(names, 1):
                    self._run_arm(self._experiment.arm(name), repetition, position)
                    if name == ALONE and repetition == 1:
                        self._plan_arms()

    def _plan_arms(self) -> None:
        """Plan the arms that keep to turns, which all come after the jobs' first lone runs."""
        self._plans = plan_arms(self._experiment, self._folder)
        if self._plans:
            write_plans(self._folder, self._plans)
        for arm, plan in self._plans.items():
            self._progress.say(
                f"{arm}: score {plan.score:.3f}, turns {plan.stretch:.1%} longer than iterations"
                " alone"
            )

    def _run_arm(self, arm: Arm, repetition: int, position: int) -> None:
        """Run an arm and write all tables; then raise what ended it early, if anything did."""
        self._interrupts.check()
        title = f"{arm.name} {repetition}/{self._experiment.repetitions}"
        self._progress.begin(title)
        turns = self._plans[arm.name].turns if arm.plan else None
        groups = plans_of(self._experiment, arm, repetition, self._trace_ms, turns)
        neighbours = neighbours_of(self._experiment, arm, repetition)
        measured: list[Measured] = []
        with self._network(len(groups[0]) + len(neighbours)) as network:
            if repetition == position == 1:
                self._describe(network)
            with contextlib.ExitStack() as stack:
                jobs = None
                if arm.is_mltcp:
                    assert self._backend is not None
                    jobs = stack.enter_context(ArmJobs(self._backend, arm, self._lock.job_id))
                for plans in groups:
                    measured.append(self._run_plans(network, plans, neighbours, jobs))
                    if measured[-1].failure is not None:
                        break
            receiving = all(job.direction == "receive" for job in self._experiment.jobs)
            counters = network.counters(reverse=receiving)
        start = measured[0].start
        for plans, part in zip(groups, measured, strict=False):
            for plan in plans:
                if document := part.documents.get(plan.name):
                    self._tables.add_job(arm.name, repetition, start, plan, document)
            for plan in neighbours:
                if document := part.documents.get(plan.name):
                    self._tables.add_neighbour(arm.name, repetition, start, plan, document)
        if jobs is not None:
            documents = {job: each for part in measured for job, each in part.documents.items()}
            self._tables.add_events(arm.name, repetition, start, jobs.events, documents)
            if jobs.warning:
                self._warn(f"{title}: {jobs.warning}")
        busy_s = sum(part.cpu_busy * part.duration for part in measured)
        cpu_busy = busy_s / (sum(part.duration for part in measured) or 1.0)
        duration = measured[-1].start + measured[-1].duration - start
        self._tables.add_arm(
            arm=arm.name,
            repetition=repetition,
            order=position,
            duration_s=duration,
            link_bytes=counters.bytes,
            link_packets=counters.packets,
            link_drops=counters.drops,
            link_marks=counters.marks,
            cpu_busy=cpu_busy,
        )
        self._tables.write(self._folder)
        for part in measured:
            if part.failure is not None:
                raise part.failure
        self._progress.say(
            f"{title}: {duration:.1f} s, {counters.drops} of {counters.packets} packets dropped,"
            f" CPUs {cpu_busy:.0%} busy"
        )
        if cpu_busy > CPU_SUSPECT:
            self._warn(
                f"{title}: the CPUs were {cpu_busy:.0%} busy, so the result is suspect; close other"
                " programs, or lower the link's rate."
            )

    def _network(self, senders: int) -> Network | Paths:
        experiment, run_id = self._experiment, self._lock.id
        if not experiment.links:
            return Network(run_id, experiment.link, experiment.sysctls, senders)
        paths = [job.links for job in experiment.jobs]
        paths += [each.links for each in experiment.neighbours]
        return Paths(run_id, experiment.links, experiment.sysctls, paths)

    def _run_plans(
        self,
        network: Network | Paths,
        plans: Sequence[Plan],
        neighbours: Sequence[Plan],
        jobs: ArmJobs | None,
    ) -> Measured:
        def prepare(plan: Plan, fds: Sequence[int]) -> None:
            if jobs is not None:
                jobs.tag(self._experiment.job(plan.name), fds)

        def count(name: str) -> None:
            if any(plan.name == name for plan in plans):
                self._progress.iteration(name)

        place = Place(network.senders, network.receiver, RECEIVER_ADDRESS)
        if isinstance(network, Paths):
            place = Place(
                network.senders, network.receiver, ANY_ADDRESS, reached_at=network.addresses
            )
        with Emulators(place, self._interrupts, prepare=prepare, on_iteration=count) as emulators:
            return emulators.run(plans, neighbours)

    def _describe(self, network: Network | Paths) -> None:
        with inside(network.senders[0]):
            here = sysctls()
        self._environment.add(network=network.read_back(), namespace_sysctls=here)

    def _warn(self, sentence: str) -> None:
        self._environment.warn(sentence)
        self._progress.say(f"warning: {sentence}")


def check_congestion_controls(experiment: Experiment) -> None:
    """Raise HostError where the kernel lacks a congestion control that is none of MLTCP's.

    Asked for by a socket, the kernel loads the module of one that isn't there yet.
    """
    for cc, asked_by in experiment.congestion_controls().items():
        if is_mltcp(cc):
            continue
        with socket.socket() as probe:
            try:
                set_congestion_control(probe, cc)
            except HostError as error:
                remedy = (
                    "leave it out with --arms"
                    if asked_by.startswith("arm ")
                    else "give it another `cc`"
                )
                raise HostError(f"The {asked_by} can't be run; {remedy}. {error}") from error
