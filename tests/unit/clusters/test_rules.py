# SPDX-License-Identifier: BSD-2-Clause
"""Treatments of whole clusters are those of variants."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from mltcp_tools.base.errors import UsageError
from mltcp_tools.clusters import rules
from mltcp_tools.clusters.rules import TREATMENTS, TWO_WAY
from mltcp_tools.lab.experiments.treatments import TREATMENTS as REGISTRY
from mltcp_tools.lab.experiments.treatments import Settings


def test_every_treatment_of_variants_has_a_rule() -> None:
    assert REGISTRY.keys() <= TREATMENTS.keys()
    # Over mltcp, one that decides by itself who gets what would be the same again.
    assert TREATMENTS["mltcp+time_shifts"].rule is TWO_WAY["mltcp"]
    assert TREATMENTS["mltcp+time_shifts"].time_shifts
    assert "mltcp+rates" not in TREATMENTS


def test_a_treatment_without_a_rule_is_refused_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @dataclass(frozen=True)
    class Unruled(Settings):
        name = "unruled"

    monkeypatch.setitem(REGISTRY, "unruled", Unruled)
    assert {each.name for each in rules._registered()} >= {"time_shifts", "rates", "priorities"}
    with pytest.raises(UsageError, match="there is no treatment 'unruled'"):
        rules.treatment("unruled")
