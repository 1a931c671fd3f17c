"""An arm's need of a network, and its gain from the settled iterations on."""

from __future__ import annotations

from typing import Any

import pytest

from mltcp_tools.lab.analysis.contenders import needs_of, settled_gain
from mltcp_tools.lab.experiments.treatments import NEEDS

NOTHING, MARKS, STAMPS, PLAN, CONTROLLER = NEEDS
ARMS: dict[str, dict[str, Any]] = {
    "reno": {"cc": "reno"},
    "dctcp": {"cc": "dctcp"},
    "mltcp": {"cc": "mltcp"},
    "rates": {"cc": "mltcp_int", "treatment": {"rates": {"source": "network"}}},
    "rates-host": {"cc": "mltcp_int", "treatment": {"rates": {"source": "host"}}},
    "planned": {"cc": "cubic", "treatment": {"turns": {}}},
    "order": {"cc": "mltcp", "treatment": {"priorities": {"weight": "none"}}},
}


@pytest.mark.parametrize(
    ("arm", "needs"),
    [
        ("reno", NOTHING),
        ("mltcp", NOTHING),
        ("rates-host", NOTHING),
        ("dctcp", MARKS),
        ("rates", STAMPS),
        ("planned", PLAN),
        ("order", CONTROLLER),
    ],
)
def test_what_an_arm_needs(arm: str, needs: str) -> None:
    assert needs_of(ARMS[arm]) == needs


def test_the_settled_gain_is_that_of_settled_iterations() -> None:
    arms = {
        arm: {"settled_mean_s": mean, "captured_gain": gain}
        for arm, mean, gain in (("reno", 0.5, None), ("mltcp", 0.42, {"value": 0.1}))
    }
    bound = {"bound": {"settled_mean_s": 0.4}}
    result = {"baseline": "reno", "arms": arms, "schedules": bound}
    assert settled_gain("mltcp", result) == pytest.approx(0.8)
    assert settled_gain("reno", result) is None
    assert settled_gain("mltcp", result | {"schedules": {}}) is None
