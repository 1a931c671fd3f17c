# SPDX-License-Identifier: BSD-2-Clause
"""The treatments of a run (base.py); the loop over variants knows none of them by name."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from mltcp_tools.base.errors import UsageError
from mltcp_tools.kernel.backends.base import IterationEvent
from mltcp_tools.kernel.congestion_controls import is_mltcp
from mltcp_tools.lab.experiments.experiment import Experiment
from mltcp_tools.lab.experiments.tasks import ClientTask
from mltcp_tools.lab.experiments.treatments import (
    PrioritiesSettings,
    RatesSettings,
    TimeShiftSettings,
)
from mltcp_tools.lab.experiments.variants import Variant
from mltcp_tools.lab.testbed.treatments.base import (
    BuiltNetwork,
    Context,
    TestbedTreatment,
    TreatmentSession,
)
from mltcp_tools.lab.testbed.treatments.mltcp import MltcpTreatment
from mltcp_tools.lab.testbed.treatments.priorities import PrioritiesTreatment
from mltcp_tools.lab.testbed.treatments.rates import RatesTreatment
from mltcp_tools.lab.testbed.treatments.time_shifts import TimeShiftsTreatment

MLTCP = "mltcp"
"""The treatment of variants whose congestion control is one of MLTCP's; it has no settings."""

KINDS: dict[str, type[TestbedTreatment]] = {
    MLTCP: MltcpTreatment,
    TimeShiftSettings.name: TimeShiftsTreatment,
    RatesSettings.name: RatesTreatment,
    PrioritiesSettings.name: PrioritiesTreatment,
}
"""All treatments, in the order in which they are applied; they are undone in the opposite one."""


def names_in(variant: Variant) -> list[str]:
    """The variant's treatments, in the order in which they are applied."""
    own = [each.name for each in variant.treatments]
    return [MLTCP, *own] if variant.is_mltcp else own


def _used(experiment: Experiment) -> list[str]:
    """All treatments that the experiment needs; for MLTCP it is enough that a neighbour does."""
    mltcp = any(is_mltcp(cc) for cc in experiment.congestion_controls())
    own = {name for variant in experiment.variants for name in names_in(variant)}
    return [name for name in KINDS if name in own or (name == MLTCP and mltcp)]


def check_treatments(experiment: Experiment, *, across: bool = False) -> None:
    """Raise UsageError or HostError where a treatment of some variant can't be applied.

    across: the jobs run on several machines.
    """
    for name in _used(experiment):
        if across and not KINDS[name].across:
            raise UsageError(
                f"{experiment.name} has a variant with {name}, which doesn't work across machines:"
                " run it without --sender."
            )
        KINDS[name].check(experiment)


class Treatments:
    """The treatments of a run."""

    def __init__(self, context: Context) -> None:
        self._all = {name: KINDS[name](context) for name in _used(context.experiment)}

    def load(self, stack: contextlib.ExitStack) -> None:
        """Do what all variants need, once; `stack` undoes it at the run's end."""
        for each in self._all.values():
            each.load(stack)

    def alone_ran(self) -> None:
        """The jobs have run alone for the first time, and the run's folder has the tables."""
        for each in self._all.values():
            each.alone_ran()

    def begin(self, variant: Variant) -> Sessions:
        """The sessions of all treatments that the variant has."""
        return Sessions(
            [self._all[name].begin(variant) for name in names_in(variant)], variant.name
        )


class Sessions:
    """The sessions of one variant's run, used as one; see `TreatmentSession`."""

    def __init__(self, sessions: Sequence[TreatmentSession], variant: str) -> None:
        self._sessions = sessions
        self._variant = variant
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            for session in self._sessions:
                stack.enter_context(session)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def network(self, network: BuiltNetwork) -> None:
        for session in self._sessions:
            session.network(network)

    def adapt(self, task: ClientTask) -> ClientTask:
        for session in self._sessions:
            task = session.adapt(task)
        return task

    def connected(self, task: ClientTask, fds: Sequence[int]) -> None:
        for session in self._sessions:
            session.connected(task, fds)

    def record(self, folder: Path, repetition: int, start_s: float) -> None:
        for session in self._sessions:
            session.record(folder, self._variant, repetition, start_s)

    @property
    def events(self) -> list[tuple[str, int, IterationEvent]]:
        return [event for session in self._sessions for event in session.events]

    @property
    def warnings(self) -> list[str]:
        """Return the warnings for the user, after leaving."""
        return [session.warning for session in self._sessions if session.warning]
