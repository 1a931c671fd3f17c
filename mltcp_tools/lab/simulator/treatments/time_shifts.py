# SPDX-License-Identifier: BSD-2-Clause
"""Planned time shifts, simulated: the jobs wait for theirs, planned from what they do alone."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from mltcp_tools.lab.experiments.experiment import Experiment
from mltcp_tools.lab.experiments.tasks import Task
from mltcp_tools.lab.experiments.variants import Variant
from mltcp_tools.lab.planning.variants import (
    VariantPlan,
    check_plans,
    plan_variants,
    with_time_shift,
    write_plans,
)
from mltcp_tools.lab.simulator.treatments import base


class Treatment(base.Treatment):
    """Variants whose jobs keep to planned time shifts."""

    waits_for_alone: ClassVar[bool] = True

    def __init__(self, experiment: Experiment) -> None:
        super().__init__(experiment)
        self._plans: dict[str, VariantPlan] = {}

    @staticmethod
    def check(experiment: Experiment) -> None:
        check_plans(experiment)

    def alone_ran(self, folder: Path) -> None:
        self._plans = plan_variants(self.experiment, folder)
        write_plans(folder, self._plans)

    def adapt(self, variant: Variant, task: Task) -> Task:
        return with_time_shift(self.experiment, task, self._plans[variant.name].time_shifts)
