"""Planned turns, simulated: the jobs wait for theirs, planned from what they do alone."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from mltcp_tools.lab.experiments.arms import Arm
from mltcp_tools.lab.experiments.experiment import Experiment
from mltcp_tools.lab.experiments.tasks import Task
from mltcp_tools.lab.planning.arms import ArmPlan, check_plans, plan_arms, with_turns, write_plans
from mltcp_tools.lab.simulator.treatments import base


class Treatment(base.Treatment):
    """Arms whose jobs keep to planned turns."""

    waits_for_alone: ClassVar[bool] = True

    def __init__(self, experiment: Experiment) -> None:
        super().__init__(experiment)
        self._plans: dict[str, ArmPlan] = {}

    @staticmethod
    def check(experiment: Experiment) -> None:
        check_plans(experiment)

    def alone_ran(self, folder: Path) -> None:
        self._plans = plan_arms(self.experiment, folder)
        write_plans(folder, self._plans)

    def adapt(self, arm: Arm, task: Task) -> Task:
        return with_turns(self.experiment, task, self._plans[arm.name].turns)
