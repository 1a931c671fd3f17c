# SPDX-License-Identifier: BSD-2-Clause
"""Loans between training and inference: autoscalers, and the comparison."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mltcp_tools.base.errors import UsageError
from mltcp_tools.clusters.fapes.compare import compare, saved
from mltcp_tools.clusters.fapes.inference import (
    Kpa,
    Predictive,
    Request,
    replayed,
    serve,
    tuned,
)
from mltcp_tools.clusters.models import Model
from mltcp_tools.clusters.policies.plan import Elastic, Scaled, scaled
from mltcp_tools.clusters.reading import parse_workload
from mltcp_tools.clusters.rules import treatment
from mltcp_tools.clusters.simulate import ClusterSimulator
from mltcp_tools.clusters.text import render_loans
from mltcp_tools.clusters.topology import regular
from mltcp_tools.clusters.workload import ClusterJob, Generated, Workload, alone_s, generate

ONE_SECOND = 0, 49
"""Tokens of a request that takes one."""
IDLE = regular(servers=8, gpus=4, leaf=4, rate_bps=25e9)
KNOWN = Model("known", 0.3, 100_000_000, step_s=0.05, noise=4.0)


def steady(rate: float, seconds: float) -> list[Request]:
    """Requests one after another at that rate."""
    return [Request(n / rate, *ONE_SECOND) for n in range(int(rate * seconds))]


@pytest.mark.parametrize("noise", [0.0, 0.5, 4.0, 1e6])
@pytest.mark.parametrize("gpus", [5, 8, 16])
def test_the_batch_is_the_one_that_trains_fastest(noise: float, gpus: int) -> None:
    model = replace(KNOWN, noise=noise)
    found = scaled(model, 4, gpus, IDLE)

    def pace(batch: float) -> float:
        """Iterations of its own that the job does in a second."""
        computes_s = 0.05 + 0.25 * batch / (gpus / 4)
        sends_s = alone_s(model, gpus, IDLE) - 0.3
        return batch * (1 + noise) / (batch + noise) / (computes_s + sends_s)

    assert 1 <= found.batch <= gpus / 4
    assert pace(found.batch) >= max(map(pace, np.linspace(1, gpus / 4, 200).tolist())) - 1e-9
    each_s = alone_s(found.model, gpus, IDLE)
    assert found.learning_rate / each_s == pytest.approx(pace(found.batch))


def test_a_job_with_what_it_asked_for_is_unchanged() -> None:
    assert scaled(KNOWN, 8, 8, IDLE) == Scaled(1.0, 1.0, KNOWN)


def test_what_is_not_known_of_a_model_promises_no_gain() -> None:
    model = replace(KNOWN, step_s=None, noise=None)
    assert scaled(model, 4, 16, IDLE) == Scaled(1.0, 1.0, model)
    assert scaled(model, 4, 2, IDLE) == Scaled(0.5, 0.5, model)
    without_noise = scaled(replace(KNOWN, noise=None), 4, 8, IDLE)
    assert (without_noise.batch, without_noise.learning_rate) == (1.0, 1.0)
    assert without_noise.model.compute_s == pytest.approx(0.05 + 0.25 / 2)
    without_step = scaled(replace(KNOWN, step_s=None), 4, 8, IDLE)
    assert (without_step.batch, without_step.model.compute_s) == (2.0, 0.3)
    assert without_step.learning_rate == pytest.approx(2 * 5 / 6)


@pytest.mark.parametrize("model", [KNOWN, replace(KNOWN, noise=None), replace(KNOWN, step_s=None)])
def test_a_job_that_grows_ends_when_the_model_says(model: Model) -> None:
    job = ClusterJob("a", model, 4, 2000)
    outcome = ClusterSimulator(Workload(IDLE, (job,)), Elastic(), treatment("reno")).run()
    (done,) = outcome.jobs
    found = scaled(model, 4, 8, IDLE)
    assert (done.batch, done.learning_rate) == (found.batch, found.learning_rate)
    each_s = alone_s(found.model, 8, IDLE)
    assert done.completion_s == pytest.approx(2000 / found.learning_rate * each_s, rel=0.01)
    assert done.completion_s < 2000 * alone_s(model, 4, IDLE)


@pytest.mark.parametrize("text", ["step: 300ms", "step: -1s", "noise: -1", "noise: .inf"])
def test_step_and_noise_that_cannot_be_are_refused(text: str) -> None:
    models = f"models: {{a: {{compute: 300ms, size: 1MB, {text}}}}}"
    with pytest.raises(UsageError, match=r"w\.yaml:1: models\.a"):
        parse_workload(f"{models}\njobs: [{{model: a, gpus: 1, iterations: 1}}]", "w.yaml")


def test_kpa_settles_where_its_target_says() -> None:
    served = serve(steady(56.0, 400), Kpa(), limit=50)
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
    served = serve(steady(40.0, 100), Kpa(), limit=2)
    assert max(served.replicas) == 2
    # 16 a second are served, so the last one waits 1.5 times as long as requests came.
    assert served.waits_s[-1] == pytest.approx(100 * (40 / 16 - 1), rel=0.05)


def test_a_prediction_meets_objectives_that_kpa_misses_in_a_ramp() -> None:
    draw = np.random.default_rng(1)
    at = np.cumsum(draw.exponential(1 / np.linspace(5, 120, 20_000)))
    requests = [Request(float(each), *ONE_SECOND) for each in at]
    kpa = serve(requests, Kpa(), 100)
    predicted = serve(requests, Predictive(1.0), 100)
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
    draws = Generated(25, 1.2, {"known": 1}, {4: 1, 8: 1}, 0.1)
    workload = Workload(topology, generate(topology, draws, 1, {"known": KNOWN}))
    hours = workload.jobs[-1].arrival_s / 3600
    requests = replayed(steady(0.5, 600), hours, 20, 1)
    results = {each["variant"]: each for each in compare(workload, requests, 4)}
    completion = {variant: each["completion_mean_s"] for variant, each in results.items()}
    assert completion["fapes"] < completion["static-elastic"]
    assert completion["lyra"] < completion["static-elastic"]
    kept = results["fapes"]["slo_attainment"]
    assert kept >= results["static-elastic"]["slo_attainment"]
    assert all(each["jobs"] == 25 for each in results.values())
    by_rival = {each["rival"]: each for each in saved([list(results.values())])}
    assert list(by_rival) == ["static-elastic", "lyra", "fapes-kpa", "fapes-fixed"]
    below = 1 - completion["fapes"] / completion["fapes-kpa"]
    assert by_rival["fapes-kpa"]["completion"] == pytest.approx(below)


def test_kpa_is_tuned_to_what_prediction_may_use() -> None:
    # A minute of many requests in every four.
    rate = np.where(np.arange(30_000) % 2000 < 1500, 80.0, 5.0)
    at = np.cumsum(np.random.default_rng(3).exponential(1 / rate))
    requests = [Request(float(each), *ONE_SECOND) for each in at]
    plain = serve(requests, Kpa(), 100)
    best = serve(requests, tuned(requests, 100), 100)
    assert best.slo_attainment > plain.slo_attainment


@pytest.mark.parametrize(
    ("half", "said"),
    [(0.01, "+2.0% ± 1.0"), (0.03, "none (+2.0% ± 3.0)"), (float("nan"), "+2.0% ± nan")],
)
def test_savings_within_their_error_are_none(half: float, said: str) -> None:
    rival = {"rival": "static-elastic", "completion": 0.02, "half": half}
    rival |= {"slo": 0.05, "slo_half": 0.01}
    shown = render_loans({"sia:traces/a.csv": {"draws": [[]], "saved": [rival]}})
    assert " ".join(shown.splitlines()[-1].split()) == f"a static-elastic {said} +5.0% ± 1.0"
