# SPDX-License-Identifier: BSD-2-Clause
"""The work of a treatment in variants that are simulated. To add one: a module here of the
treatment's name with a class `Treatment`, as testbed/treatments has one for real networks."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from mltcp_tools.lab.experiments.experiment import Experiment
from mltcp_tools.lab.experiments.tasks import Task
from mltcp_tools.lab.experiments.variants import Variant


class Treatment:
    """One kind of treatment for a whole run. Only those that some variant of it has are made."""

    waits_for_alone: ClassVar[bool] = False
    """True: it needs what the jobs do alone before any variant runs that has it."""

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment

    @staticmethod
    def check(experiment: Experiment) -> None:
        """Raise UsageError where it can't be applied; before anything is run."""

    @staticmethod
    def unknown(experiment: Experiment, variant: Variant) -> str:
        """Return its feature that isn't modelled in a variant that has it; "" where all is."""
        return ""

    def alone_ran(self, folder: Path) -> None:
        """The jobs have run alone, which the run's folder has the tables of."""

    def adapt(self, variant: Variant, task: Task) -> Task:
        """Return the task that a job is started with, given the one it would be started with."""
        return task

    def of_job(self, variant: Variant, cc: str) -> dict[str, Any]:
        """Fields of `PacketJob` for jobs and neighbours of that congestion control."""
        return {}

    def of_run(self, variant: Variant) -> dict[str, Any]:
        """Arguments of `library.simulate`."""
        return {}
