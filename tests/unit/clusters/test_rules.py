# SPDX-License-Identifier: BSD-2-Clause
"""Treatments of whole clusters are those of variants."""

from __future__ import annotations

from mltcp_tools.clusters.rules import TREATMENTS
from mltcp_tools.lab.experiments.treatments import TREATMENTS as REGISTRY


def test_every_treatment_of_variants_has_a_rule() -> None:
    assert REGISTRY.keys() <= TREATMENTS.keys()
