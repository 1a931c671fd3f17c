"""Treatments of whole clusters are those of arms."""

from __future__ import annotations

from mltcp_tools.clusters.question import TREATMENTS as ASKED
from mltcp_tools.clusters.rules import TREATMENTS, TWO_WAY
from mltcp_tools.lab.experiments.treatments import TREATMENTS as REGISTRY


def test_every_treatment_of_arms_has_a_rule_and_is_asked_about() -> None:
    assert REGISTRY.keys() <= TREATMENTS.keys()
    assert REGISTRY.keys() <= set(ASKED)
    # Over mltcp, one that decides by itself who gets what would be the same again.
    assert TREATMENTS["mltcp+turns"].rule is TWO_WAY["mltcp"]
    assert TREATMENTS["mltcp+turns"].turns
    assert "mltcp+rates" not in TREATMENTS
