# SPDX-License-Identifier: BSD-2-Clause
"""Rates from feedback, simulated: flows of mltcp_int hear of the links they cross."""

from __future__ import annotations

from typing import Any

from mltcp_tools.lab.experiments.experiment import Experiment
from mltcp_tools.lab.experiments.treatments import RatesSettings
from mltcp_tools.lab.experiments.variants import Variant
from mltcp_tools.lab.simulator.treatments import base


class Treatment(base.Treatment):
    """Variants whose windows follow feedback; hosts have no uplinks of their own."""

    @staticmethod
    def unknown(experiment: Experiment, variant: Variant) -> str:
        return (
            "an uplink of the hosts" if variant.settings(RatesSettings).uplink is not None else ""
        )

    def of_job(self, variant: Variant, cc: str) -> dict[str, Any]:
        settings = variant.settings(RatesSettings)
        return {"rate": settings.fields()} if cc == settings.cc else {}
