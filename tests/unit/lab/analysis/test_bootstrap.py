# SPDX-License-Identifier: BSD-2-Clause
"""The bootstrap: values by hand, intervals by what they must have in common with the truth."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from mltcp_tools.lab.analysis import bootstrap


def cube(repetitions: int, iterations: int, jobs: int, seed: int = 0) -> bootstrap.Floats:
    return 1 + 0.1 * np.random.default_rng(seed).standard_normal((repetitions, iterations, jobs))


def replicate(values: bootstrap.Floats, seed: int = bootstrap.SEED) -> bootstrap.Replicates:
    found = bootstrap.replicate(values, seed)
    assert found is not None
    return found


def test_values_of_the_data_itself() -> None:
    values = np.arange(1.0, 101.0).reshape(1, 100, 1)
    found = replicate(values)
    assert found.mean_value == pytest.approx(50.5)
    assert found.p99_value == pytest.approx(np.percentile(values, 99))
    assert found.mean.shape == found.p99.shape == (bootstrap.REPLICATES,)


def test_the_same_seed_gives_the_same_draws() -> None:
    values = cube(3, 50, 2)
    one, two, other = (replicate(values, seed) for seed in (1, 1, 2))
    assert np.array_equal(one.mean, two.mean)
    assert not np.array_equal(one.mean, other.mean)


def test_variants_share_their_draws() -> None:
    values = cube(3, 50, 2)
    one, double = replicate(values), replicate(2 * values)
    found = bootstrap.combine(bootstrap.speedup, double, one)
    for estimate in found.values():
        assert (estimate.value, estimate.low, estimate.high) == pytest.approx((2, 2, 2))


def test_interval_of_independent_values_has_theoretical_width() -> None:
    values = cube(1, 400, 1)
    found = replicate(values)
    assert found.mean.std() == pytest.approx(0.1 / np.sqrt(400), rel=0.3)


def test_interval_of_correlated_values_is_wider() -> None:
    drawn = 1 + 0.1 * np.random.default_rng(0).standard_normal(40)
    slow = np.repeat(drawn, 10).reshape(1, 400, 1)
    found = replicate(slow)
    # As wide as 40 independent values make it, not as narrow as 400 would.
    assert found.mean.std() > 2 * slow.std() / np.sqrt(400)


def test_differences_between_repetitions_widen_the_interval() -> None:
    values = cube(4, 100, 2) + np.array([0.0, 0.1, 0.2, 0.3]).reshape(4, 1, 1)
    found = replicate(values)
    assert found.mean.std() == pytest.approx(0.112 / 2, rel=0.3)


def test_missing_values_are_left_out() -> None:
    values = cube(3, 60, 2)
    values[1, 20:] = np.nan  # stopped early
    values[2] = np.nan  # never ran
    found = replicate(values)
    assert np.isfinite(found.mean).all()
    assert np.isfinite(found.p99).all()
    assert found.mean_value == pytest.approx(np.nanmean(values))
    assert found.p99_value == pytest.approx(np.nanpercentile(values, 99))
    assert bootstrap.replicate(np.full((2, 3, 1), np.nan)) is None
    assert bootstrap.replicate(np.empty((0, 0, 0))) is None


def test_jobs_with_unequal_iteration_counts_keep_weights() -> None:
    # A job of 1 s with 100 iterations and one of 4 s with 25: resampling must not change the
    # scenario.
    values = np.full((2, 100, 2), np.nan)
    values[:, :, 0], values[:, :25, 1] = 1.0, 4.0
    found = replicate(values)
    assert found.mean_value == pytest.approx(1.6)
    assert found.mean == pytest.approx(1.6)


def test_replicates_made_in_parts_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    values = cube(2, 30, 2)
    whole = replicate(values)
    monkeypatch.setattr(bootstrap, "_CHUNK_VALUES", 1000)
    parts = replicate(values)
    assert np.array_equal(whole.mean, parts.mean)
    assert np.array_equal(whole.p99, parts.p99)


def test_captured_gain() -> None:
    assert bootstrap.captured_gain(2.0, 1.25, 1.0) == pytest.approx(0.75)
    assert np.isnan(bootstrap.captured_gain(1.0, 0.9, 1.0))
    assert bootstrap.estimate(float("nan"), np.ones(bootstrap.REPLICATES)) is None
    few = np.full(bootstrap.REPLICATES, np.nan)
    few[:10] = 1.0
    assert bootstrap.estimate(1.0, few) == bootstrap.Estimate(1.0, None, None)


def test_cubes_line_tables_up() -> None:
    def table(rows: list[tuple[int, str, int, float]]) -> pd.DataFrame:
        frame = pd.DataFrame(rows, columns=["repetition", "job", "iteration", "end_s"])
        return frame.assign(start_s=0.0)

    one, two = bootstrap.cubes(
        [
            table([(1, "a", 1, 1.0), (1, "a", 2, 2.0), (2, "b", 1, 3.0)]),
            table([(1, "a", 2, 5.0), (2, "b", 1, 6.0)]),
        ]
    )
    assert one.shape == two.shape == (2, 2, 2)
    assert one[0, :, 0].tolist() == [1.0, 2.0]
    mask = bootstrap.shared(one, two)
    assert one[mask].tolist() == [2.0, 3.0]
    assert two[mask].tolist() == [5.0, 6.0]
