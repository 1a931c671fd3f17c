# SPDX-License-Identifier: BSD-2-Clause
"""The treatments of variants, in a simulation: jobs that wait for their slots, flows that hear of
the links they cross, links with levels of priority."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mltcp_tools.lab.experiments.experiment import Experiment
from mltcp_tools.lab.experiments.tasks import ClientTask
from mltcp_tools.lab.experiments.treatments import (
    PrioritiesSettings,
    RatesSettings,
    TimeShiftSettings,
)
from mltcp_tools.lab.experiments.variants import Variant
from mltcp_tools.lab.planning.variants import (
    VariantPlan,
    check_plans,
    plan_variants,
    with_time_shift,
    write_plans,
)
from mltcp_tools.lab.simulator.inputs import PriorityQueues
from mltcp_tools.live.priorities.coflows import WEIGHTS

CONTROL_S = 1e-3
"""The time that a controller of priorities takes to hear of a burst and to change them."""


class SimulatedTreatments:
    """The treatments of these variants, for a run."""

    def __init__(self, experiment: Experiment, variants: Iterable[Variant]) -> None:
        self._experiment = experiment
        self._plans: dict[str, VariantPlan] = {}
        self.wait_for_alone = any(each.treatment(TimeShiftSettings) for each in variants)
        """True: some need the jobs' isolated runs before any variant runs."""

    def check(self) -> None:
        """Raise UsageError where one can't be applied."""
        check_plans(self._experiment)

    def alone_ran(self, folder: Path) -> None:
        """The jobs have run alone, which the run's folder has the tables of."""
        self._plans = plan_variants(self._experiment, folder)
        write_plans(folder, self._plans)

    def adapt(self, variant: Variant, task: ClientTask) -> ClientTask:
        """Return the task that a job of the variant is started with."""
        if variant.treatment(TimeShiftSettings) is None:
            return task
        return with_time_shift(self._experiment, task, self._plans[variant.name].time_shifts)


def of_job(variant: Variant, cc: str) -> dict[str, Any]:
    """Fields of `PacketJob` for the variant's jobs and neighbours of that congestion control."""
    rates = variant.treatment(RatesSettings)
    return {} if rates is None or cc != rates.cc else {"rate": rates.fields()}


def of_run(variant: Variant) -> dict[str, Any]:
    """Arguments of `library.simulate` for the variant."""
    found = variant.treatment(PrioritiesSettings)
    if found is None:
        return {}
    return {"priorities": PriorityQueues(WEIGHTS.index(found.weight), found.floor, CONTROL_S)}
