"""The fitted rules against the packet simulator."""

from __future__ import annotations

import pytest

from mltcp_tools.clusters.validate import CONTENDED, validate


@pytest.mark.parametrize("name", ["two-jobs", "unequal-jobs", "different-periods", "arrivals"])
def test_iteration_times_are_within_their_limits(name: str) -> None:
    cases = validate([name])
    assert {case.rule for case in cases} >= {"fair", "reno", "mltcp"}
    if name in CONTENDED:
        assert {case.arm for case in cases} >= {"mlcc", "priority", "aggregation"}
    for case in cases:
        assert abs(case.error) <= case.limit, case
