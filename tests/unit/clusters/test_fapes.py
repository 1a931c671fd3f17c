# SPDX-License-Identifier: BSD-2-Clause
"""Loans between training and inference: autoscalers, and the comparison."""

from __future__ import annotations

import numpy as np
import pytest

from mltcp_tools.clusters.fapes.compare import compare, objective, saved
from mltcp_tools.clusters.fapes.inference import (
    Kpa,
    Predictive,
    Request,
    Service,
    replayed,
    serve,
    tuned,
)
from mltcp_tools.clusters.topology import regular
from mltcp_tools.clusters.workload import Generated, Workload, generate

ONE_SECOND = Service(context_s=0.0, generated_s=0.0, base_s=1.0)


def steady(rate: float, seconds: float) -> list[Request]:
    """Requests one after another at that rate."""
    return [Request(n / rate, 1, 1) for n in range(int(rate * seconds))]


def test_kpa_settles_where_its_target_says() -> None:
    served = serve(steady(56.0, 400), Kpa(), ONE_SECOND, limit=50)
    # 56 requests in service, 8 x 0.7 for each replica.
    assert served.replicas[-1] == 10
    assert served.waits_s[-1000:].max() == 0


def test_kpa_panics_at_once_and_scales_down_by_halves() -> None:
    kpa = Kpa()
    assert [kpa.wanted(2.0 * n, 5.0, 10, 1) for n in range(30)][-1] == 1
    assert kpa.wanted(62.0, 300.0, 600, 1) > 10
    calm = Kpa()
    assert calm.wanted(2.0, 0.0, 0, 40) == 20


def test_no_more_than_the_limit_serve() -> None:
    served = serve(steady(40.0, 100), Kpa(), ONE_SECOND, limit=2)
    assert max(served.replicas) == 2
    # 16 a second are served, so the last one waits 1.5 times as long as requests came.
    assert served.waits_s[-1] == pytest.approx(100 * (40 / 16 - 1), rel=0.05)


def test_a_prediction_meets_objectives_that_kpa_misses_in_a_ramp() -> None:
    draw = np.random.default_rng(1)
    at = np.cumsum(draw.exponential(1 / np.linspace(5, 120, 20_000)))
    requests = [Request(float(each), 1, 1) for each in at]
    kpa = serve(requests, Kpa(), ONE_SECOND, 100)
    predicted = serve(requests, Predictive(1.0), ONE_SECOND, 100)
    assert predicted.slo_attainment >= kpa.slo_attainment
    assert predicted.slo_attainment > 0.99


def test_tenants_replay_the_trace() -> None:
    base = steady(1.0, 3600)
    found = replayed(base, 2.0, 3, 1, 0.0)
    assert len(found) == pytest.approx(3 * 7200, rel=0.01)
    assert all(0 <= each.arrival_s < 7200 for each in found)
    assert len(replayed(base, 2.0, 3, 1)) < len(found)


def test_loans_help_training_and_keep_the_objective() -> None:
    topology = regular(servers=8, gpus=4, leaf=4, rate_bps=25e9)
    draws = Generated(jobs=25, load=1.2, hours=0.1, gpus={4: 1, 8: 1})
    workload = Workload(topology, generate(topology, draws, 1))
    hours = workload.jobs[-1].arrival_s / 3600
    requests = replayed(steady(0.5, 600), hours, 20, 1)
    results = {each.variant: each for each in compare(workload, requests, ONE_SECOND, 4)}
    completion = {
        variant: each.training.summary()["completion_mean_s"] for variant, each in results.items()
    }
    assert completion["fapes"] < completion["static"]  # type: ignore[operator]
    assert completion["lyra"] < completion["static"]  # type: ignore[operator]
    kept = results["fapes"].served.slo_attainment
    assert kept >= results["static"].served.slo_attainment
    assert all(len(each.training.jobs) == 25 for each in results.values())
    by_rival = {each.rival: each for each in saved([list(results.values())])}
    assert list(by_rival) == ["static", "static-elastic", "lyra", "fapes-kpa"]
    below = 1 - completion["fapes"] / completion["lyra"]  # type: ignore[operator]
    assert by_rival["lyra"].completion == pytest.approx(below)
    assert objective([list(results.values())]) == ""


def test_an_objective_missed_by_all_is_not_kept() -> None:
    """Requests that nobody could serve: better than the others isn't good."""
    topology = regular(servers=4, gpus=4, leaf=4, rate_bps=25e9)
    draws = Generated(jobs=4, load=0.5, hours=0.05, gpus={4: 1})
    workload = Workload(topology, generate(topology, draws, 1))
    # What 12 GPUs can serve for a minute, and more than they can after it.
    flood = [Request(60 + each.arrival_s, 1, 1) for each in steady(300.0, 100)]
    requests = [*steady(60.0, 60), *flood]
    results = compare(workload, requests, ONE_SECOND, 1)
    assert saved([results])[0].slo > 0
    assert objective([results]).startswith("The objective isn't kept: ")


def test_kpa_is_tuned_to_what_prediction_may_use() -> None:
    # A minute of many requests in every four.
    rate = np.where(np.arange(30_000) % 2000 < 1500, 80.0, 5.0)
    at = np.cumsum(np.random.default_rng(3).exponential(1 / rate))
    requests = [Request(float(each), 1, 1) for each in at]
    plain = serve(requests, Kpa(), ONE_SECOND, 100)
    best = serve(requests, tuned(requests, ONE_SECOND, 100), ONE_SECOND, 100)
    assert best.slo_attainment > plain.slo_attainment
