"""Treatments: what arms do to their jobs (base.py). The loop over arms knows none of them."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from mltcp_tools.backends.base import IterationEvent
from mltcp_tools.errors import UsageError
from mltcp_tools.experiments.arms import Arm
from mltcp_tools.experiments.experiment import Experiment
from mltcp_tools.experiments.tasks import Task
from mltcp_tools.testbed.treatments.base import Context, Network, Session, Treatment
from mltcp_tools.testbed.treatments.cassini import CassiniTreatment
from mltcp_tools.testbed.treatments.feedback import FeedbackTreatment
from mltcp_tools.testbed.treatments.mltcp import MltcpTreatment
from mltcp_tools.testbed.treatments.sincronia import SincroniaTreatment

KINDS: tuple[type[Treatment], ...] = (
    MltcpTreatment,
    CassiniTreatment,
    FeedbackTreatment,
    SincroniaTreatment,
)
"""In the order in which they are applied; they are undone in the opposite one."""


def check_treatments(experiment: Experiment, *, across: bool = False) -> None:
    """Raise UsageError or HostError where a treatment of some arm can't be applied.

    across: the jobs run on several machines.
    """
    for kind in _used(experiment):
        if across and not kind.across:
            arm = next(arm for arm in experiment.arms if kind.applies(arm))
            noun = " and ".join(each.noun for each in arm.treatments)
            raise UsageError(
                f"{experiment.name} has {noun}, which doesn't work across machines: run it"
                " with `mltcp testbed run`."
            )
        kind.check(experiment)


def _used(experiment: Experiment) -> list[type[Treatment]]:
    return [kind for kind in KINDS if kind.used(experiment)]


class Treatments:
    """The treatments of a run."""

    def __init__(self, context: Context) -> None:
        self._all = [kind(context) for kind in _used(context.experiment)]

    def load(self, stack: contextlib.ExitStack) -> None:
        """Do what all arms need, once; `stack` undoes it at the run's end."""
        for each in self._all:
            each.load(stack)

    def alone_ran(self) -> None:
        """The jobs have run alone for the first time, and the run's folder has the tables."""
        for each in self._all:
            each.alone_ran()

    def begin(self, arm: Arm) -> Sessions:
        """The sessions of all treatments that the arm has."""
        return Sessions([each.begin(arm) for each in self._all if each.applies(arm)], arm.name)


class Sessions:
    """The sessions of one arm's run, used as one; see `Session`."""

    def __init__(self, sessions: Sequence[Session], arm: str) -> None:
        self._sessions = sessions
        self._arm = arm
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            for session in self._sessions:
                stack.enter_context(session)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def network(self, network: Network) -> None:
        for session in self._sessions:
            session.network(network)

    def adapt(self, task: Task) -> Task:
        for session in self._sessions:
            task = session.adapt(task)
        return task

    def connected(self, task: Task, fds: Sequence[int]) -> None:
        for session in self._sessions:
            session.connected(task, fds)

    def record(self, folder: Path, repetition: int, start_s: float) -> None:
        for session in self._sessions:
            session.record(folder, self._arm, repetition, start_s)

    @property
    def events(self) -> list[tuple[str, int, IterationEvent]]:
        return [event for session in self._sessions for event in session.events]

    @property
    def warnings(self) -> list[str]:
        """What the user should hear of, after leaving."""
        return [session.warning for session in self._sessions if session.warning]
