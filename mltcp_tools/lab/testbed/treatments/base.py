# SPDX-License-Identifier: BSD-2-Clause
"""A treatment: what a variant does to its jobs besides choosing their congestion control.

A treatment lives as long as the run, one object for all variants that have it; each time such a
variant runs it makes a session, which does five things in this order, each of which may be nothing:

1. prepare the network and the hosts (`network`),
2. say what a job gets at its start (`adapt` before it is started, `connected` when its sockets are
   there and nothing has been sent),
3. run something beside the jobs (from `connected` on, until the session is left),
4. record what it saw (`record`),
5. undo what it did (`__exit__`, on every way out).

The README beside this file says how to add one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

from mltcp_tools.kernel.backends.base import IterationEvent
from mltcp_tools.lab.experiments.experiment import Experiment
from mltcp_tools.lab.experiments.tasks import ClientTask
from mltcp_tools.lab.experiments.variants import Variant


class BuiltNetwork(Protocol):
    """The network of a variant, as far as treatments look at it (network.py, paths.py).

    senders: the namespaces that tasks' `sender` counts from 0. receiver: the other end's.
    """

    senders: list[str]
    receiver: str

    def bottlenecks(self) -> Sequence[tuple[str, Any]]:
        """(namespace, link) of every bottleneck, both directions; each is on the interface
        qdiscs.BOTTLENECK."""
        ...


@dataclass(frozen=True)
class Context:
    """The resources that a run has for its treatments.

    folder: the run's; None on a machine that only takes part in it. backend: name of the backend
    that the user asked for. locks: the folder of lock files. run_id: that
    of the run on this host, once it has begun. new_id: makes the id of a job that
    nobody else on the host uses. say, warn: sentences for the user; warnings are recorded too.
    note: adds facts to the run's environment.
    """

    experiment: Experiment
    folder: Path | None
    backend: str
    locks: Path
    run_id: Callable[[], str]
    new_id: Callable[[int], int]
    say: Callable[[str], None]
    warn: Callable[[str], None]
    note: Callable[[Mapping[str, Any]], None]


class TreatmentSession:
    """One variant's run under a treatment: a context manager; `warning` is for the user, at its
    end."""

    warning: str | None = None

    @property
    def events(self) -> Sequence[tuple[str, int, IterationEvent]]:
        """(job, flow, iteration that the kernel saw end), complete after leaving."""
        return ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Undo everything."""

    def network(self, network: BuiltNetwork) -> None:
        """The network has been built; not called across machines."""

    def adapt(self, task: ClientTask) -> ClientTask:
        """Return the task that a job is started with, given the one it would be started with."""
        return task

    def connected(self, task: ClientTask, fds: Sequence[int]) -> None:
        """A job's sending sockets are connected; they are ours until this returns."""

    def record(self, folder: Path, variant: str, repetition: int, start_s: float) -> None:
        """Write what else was seen into the run's folder; called after leaving, here only.

        start_s: the variant's start, CLOCK_MONOTONIC.
        """


class TestbedTreatment:
    """One kind of treatment for a whole run. Only those that some variant of it has are made."""

    across: ClassVar[bool] = False
    """True: it works where jobs run on other machines."""

    def __init__(self, context: Context) -> None:
        self.context = context

    @staticmethod
    def check(experiment: Experiment) -> None:
        """Raise UsageError or HostError where it can't be applied; before anything is changed."""

    def load(self, stack: contextlib.ExitStack) -> None:
        """Do what all variants need, once; `stack` undoes it at the run's end."""

    def alone_ran(self) -> None:
        """The jobs have run alone for the first time, which the run's folder has the tables of."""

    def begin(self, variant: Variant) -> TreatmentSession:
        """A session for one run of the variant."""
        raise NotImplementedError
