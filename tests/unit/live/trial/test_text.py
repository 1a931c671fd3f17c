# SPDX-License-Identifier: BSD-2-Clause
"""Findings of a trial, for people and for programs."""

from __future__ import annotations

import json

import pytest
from support.simulated_jobs import Simulated, SimulatedWorld

from mltcp_tools.live.trial import text
from mltcp_tools.live.trial.conduct import Conducted
from mltcp_tools.live.trial.outcome import judge
from mltcp_tools.live.trial.trial import Plan, Trial


@pytest.fixture(scope="module")
def found() -> Conducted:
    world = SimulatedWorld(2, {"a<b": Simulated(effect=-0.08), "c": Simulated(effect=0.05)})
    world.third_s = 1290.0
    course = Trial(Plan(8, 60.0, 0.2), world, 2, lambda _: None).run()
    return Conducted("cubic", "mltcp", course, judge(course))


def test_the_document_is_json_and_has_every_round(found: Conducted) -> None:
    document = json.loads(json.dumps(text.document(found)))
    assert document["schema"] == "mltcp-trial/1"
    assert [each["round"] for each in document["rounds"]] == list(range(1, 10))
    assert sum(bool(each["discarded"]) for each in document["rounds"]) == 1
    assert [each["job"] for each in document["jobs"]] == ["a<b", "c"]
    assert document["jobs"][0]["change"]["mean"] == pytest.approx(-0.08, abs=0.02)
