# SPDX-License-Identifier: BSD-2-Clause
"""Time shifts of jobs that share links, and whether they fit."""

from __future__ import annotations

from mltcp_tools.clusters.models import Model, phases_of
from mltcp_tools.clusters.time_shifts import FITS, group_plan
from mltcp_tools.clusters.topology import regular


def test_shifts_separate_jobs_that_fit() -> None:
    topology = regular(servers=8, gpus=1, leaf=2, oversubscription=2.0, spines=1, rate_bps=10e9)

    def planned(compute_s: float) -> tuple[float, tuple[float, ...]]:
        model = Model("m", compute_s, 50_000_000)
        jobs = [phases_of(model, topology, {n: 1, n + 2: 1}, n) for n in (0, 1)]
        plan = group_plan(topology, jobs)
        assert plan is not None
        return plan

    score, (shift_s,) = planned(0.2)
    assert score >= FITS
    # A burst takes 0.084 s of 0.284.
    assert 0.08 < shift_s < 0.284 * 1.03 - 0.08
    assert planned(0.01)[0] < FITS
