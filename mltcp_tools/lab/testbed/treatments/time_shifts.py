# SPDX-License-Identifier: BSD-2-Clause
"""Planned time shifts as a treatment: the jobs wait for theirs (planning/variants.py says when they
are)."""

from __future__ import annotations

from collections.abc import Mapping

from mltcp_tools.lab.emulator.time_shift import TimeShift
from mltcp_tools.lab.experiments.experiment import Experiment
from mltcp_tools.lab.experiments.tasks import ClientTask
from mltcp_tools.lab.experiments.variants import Variant
from mltcp_tools.lab.planning.variants import (
    VariantPlan,
    check_plans,
    plan_variants,
    with_time_shift,
    write_plans,
)
from mltcp_tools.lab.testbed.treatments.base import Context, TestbedTreatment, TreatmentSession


class TimeShiftsTreatment(TestbedTreatment):
    """Variants whose jobs keep to planned time shifts; the plans are made after the jobs' first
    isolated runs."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._plans: dict[str, VariantPlan] = {}

    @staticmethod
    def check(experiment: Experiment) -> None:
        check_plans(experiment)

    def alone_ran(self) -> None:
        assert self.context.folder is not None
        self._plans = plan_variants(self.context.experiment, self.context.folder)
        write_plans(self.context.folder, self._plans)
        for variant, plan in self._plans.items():
            self.context.say(
                f"{variant}: score {plan.score:.3f}, time shifts {plan.stretch:.1%} longer than"
                f" iterations"
                " alone"
            )

    def begin(self, variant: Variant) -> TimeShiftsSession:
        return TimeShiftsSession(self.context.experiment, self._plans[variant.name].time_shifts)


class TimeShiftsSession(TreatmentSession):
    """Gives each job its time shifts."""

    def __init__(self, experiment: Experiment, time_shifts: Mapping[str, TimeShift]) -> None:
        self._experiment = experiment
        self._time_shifts = time_shifts

    def adapt(self, task: ClientTask) -> ClientTask:
        return with_time_shift(self._experiment, task, self._time_shifts)
