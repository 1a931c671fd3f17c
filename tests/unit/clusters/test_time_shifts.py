# SPDX-License-Identifier: BSD-2-Clause
"""Jobs that share links have time shifts where these fit."""

from __future__ import annotations

from mltcp_tools.clusters.models import Model, phases_of
from mltcp_tools.clusters.time_shifts import Sharing, plan_time_shifts
from mltcp_tools.clusters.topology import regular


def test_time_shifts_are_planned_only_for_jobs_that_fit() -> None:
    topology = regular(servers=8, gpus=1, leaf=2, oversubscription=2.0, spines=1, rate_bps=10e9)

    def sharing(compute_s: float) -> list[Sharing]:
        model = Model("m", compute_s, 50_000_000)
        return [Sharing(str(n), phases_of(model, topology, {n: 1, n + 2: 1}, n)) for n in range(2)]

    time_shifts = plan_time_shifts(topology, sharing(0.2))
    assert set(time_shifts) == {"0", "1"}
    # A burst takes 0.084 s of 0.284; the other's is half a slot away.
    apart = abs(time_shifts["0"].due_s - time_shifts["1"].due_s) % time_shifts["0"].period_s
    assert 0.08 < apart < time_shifts["0"].period_s - 0.08
    assert plan_time_shifts(topology, sharing(0.01)) == {}
