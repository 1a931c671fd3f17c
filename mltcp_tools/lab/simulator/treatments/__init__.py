# SPDX-License-Identifier: BSD-2-Clause
"""The treatments of variants that are simulated (base.py); whoever runs variants knows none by
name."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mltcp_tools.lab.experiments.experiment import Experiment
from mltcp_tools.lab.experiments.tasks import Task
from mltcp_tools.lab.experiments.treatments import TREATMENTS
from mltcp_tools.lab.experiments.variants import Variant
from mltcp_tools.lab.simulator.treatments.base import Treatment


def kind(name: str) -> type[Treatment]:
    """The treatment of that name: the class `Treatment` of the module called so in this package."""
    found: type[Treatment] = import_module(f"{__name__}.{name}").Treatment
    return found


def is_modelled(name: str) -> bool:
    """Say whether the treatment of that name can be simulated."""
    return find_spec(f"{__name__}.{name}") is not None


def unknown(experiment: Experiment, variant: Variant) -> str:
    """Return the feature of the variant's treatments that isn't modelled; "" where all is."""
    for name in (settings.name for settings in variant.treatments):
        if not is_modelled(name):
            return name
        if what := kind(name).unknown(experiment, variant):
            return what
    return ""


class Treatments:
    """The treatments of these variants, for a run."""

    def __init__(self, experiment: Experiment, variants: Iterable[Variant]) -> None:
        used = {each.name for variant in variants for each in variant.treatments}
        self._all = {name: kind(name)(experiment) for name in TREATMENTS if name in used}

    def check(self) -> None:
        """Raise UsageError where one can't be applied."""
        for each in self._all.values():
            each.check(each.experiment)

    @property
    def wait_for_alone(self) -> bool:
        """Return whether some need the jobs' isolated runs before any variant runs."""
        return any(each.waits_for_alone for each in self._all.values())

    def alone_ran(self, folder: Path) -> None:
        """The jobs have run alone, which the run's folder has the tables of."""
        for each in self._all.values():
            each.alone_ran(folder)

    def adapt(self, variant: Variant, task: Task) -> Task:
        """Return the task that a job of the variant is started with."""
        for each in self._of(variant):
            task = each.adapt(variant, task)
        return task

    def of_job(self, variant: Variant, cc: str) -> dict[str, Any]:
        """Fields of `PacketJob` for jobs and neighbours of that congestion control."""
        return {
            key: own for each in self._of(variant) for key, own in each.of_job(variant, cc).items()
        }

    def of_run(self, variant: Variant) -> dict[str, Any]:
        """Arguments of `library.simulate`."""
        return {key: own for each in self._of(variant) for key, own in each.of_run(variant).items()}

    def _of(self, variant: Variant) -> list[Treatment]:
        return [self._all[settings.name] for settings in variant.treatments]
