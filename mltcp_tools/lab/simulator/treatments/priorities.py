# SPDX-License-Identifier: BSD-2-Clause
"""Priorities from an order of bursts, simulated: levels at the links, and a controller."""

from __future__ import annotations

from typing import Any

from mltcp_tools.lab.experiments.experiment import Experiment
from mltcp_tools.lab.experiments.treatments import PrioritiesSettings
from mltcp_tools.lab.experiments.variants import Variant
from mltcp_tools.lab.simulator.inputs import Priorities
from mltcp_tools.lab.simulator.treatments import base
from mltcp_tools.live.priorities.coflows import WEIGHTS

CONTROL_S = 1e-3
"""The time that a controller takes to hear of a burst and to change priorities."""


class Treatment(base.Treatment):
    """Variants whose bursts have priorities; links that also manage their queues aren't
    modelled."""

    @staticmethod
    def unknown(experiment: Experiment, variant: Variant) -> str:
        links = experiment.links.values() or [experiment.link]
        managed = any(link.aqm != "none" for link in links)
        return "priorities with queue management" if managed else ""

    def of_run(self, variant: Variant) -> dict[str, Any]:
        settings = variant.settings(PrioritiesSettings)
        weight = WEIGHTS.index(settings.weight)
        return {"priorities": Priorities(settings.levels, weight, CONTROL_S, settings.floor)}
