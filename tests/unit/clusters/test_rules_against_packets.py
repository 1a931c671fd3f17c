# SPDX-License-Identifier: BSD-2-Clause
"""The fitted rules against the packet simulator."""

from __future__ import annotations

import pytest
from bench.bench_flow_rules import FITTED, gains, validate

from mltcp_tools.clusters.rules import UNTOLD


@pytest.mark.parametrize("name", ["two-jobs", "unequal-jobs", "different-periods", "arrivals"])
def test_iteration_times_are_within_their_limits(name: str) -> None:
    cases = validate([name])
    assert {case.rule for case in cases} >= {"fair", "reno"}
    for case in cases:
        assert abs(case.error) <= case.limit, case


def test_gains_on_unfitted_networks_err_as_documented() -> None:
    names = ["circle", "experts", "ring", "sharded"]
    assert not FITTED & set(names)
    off = [gain.error for gain in gains(validate(names))]
    assert len(off) == len(names)
    assert UNTOLD / 2 < max(map(abs, off)) <= UNTOLD  # neither too small nor much too large


def test_a_mix_of_a_matrix_can_be_named() -> None:
    name = "agreement/short-queue"
    assert {case.experiment for case in validate([name])} == {name}
