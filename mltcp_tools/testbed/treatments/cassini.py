"""Planned turns as a treatment: the jobs wait for theirs (planning/arms.py says when they are)."""

from __future__ import annotations

from collections.abc import Mapping

from mltcp_tools.emulator.turns import Turns
from mltcp_tools.experiments.arms import Arm
from mltcp_tools.experiments.experiment import Experiment
from mltcp_tools.experiments.tasks import Task
from mltcp_tools.experiments.treatments import Cassini
from mltcp_tools.planning.arms import ArmPlan, check_plans, plan_arms, with_turns, write_plans
from mltcp_tools.testbed.treatments.base import Context, Session, Treatment


class CassiniTreatment(Treatment):
    """Arms whose jobs keep to planned turns; the plans are made after the jobs' first lone runs."""

    settings = Cassini

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._plans: dict[str, ArmPlan] = {}

    @staticmethod
    def check(experiment: Experiment) -> None:
        check_plans(experiment)

    def alone_ran(self) -> None:
        assert self.context.folder is not None
        self._plans = plan_arms(self.context.experiment, self.context.folder)
        write_plans(self.context.folder, self._plans)
        for arm, plan in self._plans.items():
            self.context.say(
                f"{arm}: score {plan.score:.3f}, turns {plan.stretch:.1%} longer than iterations"
                " alone"
            )

    def begin(self, arm: Arm) -> CassiniSession:
        return CassiniSession(self.context.experiment, self._plans[arm.name].turns)


class CassiniSession(Session):
    """Gives each job its turns."""

    def __init__(self, experiment: Experiment, turns: Mapping[str, Turns]) -> None:
        self._experiment = experiment
        self._turns = turns

    def adapt(self, task: Task) -> Task:
        return with_turns(self._experiment, task, self._turns)
