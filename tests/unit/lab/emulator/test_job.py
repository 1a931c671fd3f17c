# SPDX-License-Identifier: BSD-2-Clause
"""The description of a periodic job: what it allows, its shares, its compute times."""

from __future__ import annotations

import statistics
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltcp_tools.base.errors import UsageError
from mltcp_tools.lab.emulator.job import JobSpec, compute_times
from mltcp_tools.lab.emulator.patterns import split


def spec(**changes: Any) -> JobSpec:
    values: dict[str, Any] = {"bytes_per_iteration": 1_000_000, "compute_s": 0.1, "iterations": 50}
    return JobSpec(**(values | changes))


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"bytes_per_iteration": 1000, "flows": 4, "bursts": 4}, "must be 1024"),
        ({"bytes_per_iteration": 1 << 41}, "bytes per iteration"),
        ({"compute_s": float("nan")}, "compute time"),
        ({"iterations": None}, "number of iterations or a duration"),
        ({"jitter": -0.1}, "jitter"),
        ({"flows": 513}, "flows"),
        ({"cc": "a-name-with-hyphens"}, "congestion control"),
        ({"direction": "sideways"}, "direction"),
        ({"straggler_every": 0}, "stragglers"),
    ],
)
def test_impossible_job_is_a_usage_error(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        spec(**changes)


@given(st.integers(0, 10**12), st.integers(1, 1000))
def test_split_is_whole_and_even(total: int, parts: int) -> None:
    shares = split(total, [1] * parts)
    assert sum(shares) == total
    assert len(shares) == parts
    assert max(shares) - min(shares) <= 1


@given(st.integers(1, 20), st.integers(1, 20), st.integers(0, 10**6))
def test_shares_add_up_and_hold_the_records(flows: int, bursts: int, extra: int) -> None:
    job = spec(bytes_per_iteration=64 * flows * bursts + extra, flows=flows, bursts=bursts)
    shares = [job.shares(burst) for burst in range(1, bursts + 1)]
    assert sum(map(sum, shares)) == job.bytes_per_iteration
    assert min(map(min, shares)) >= 64


def test_seed_decides_the_jitter() -> None:
    first, again = (list(compute_times(spec(jitter=0.05, seed=3))) for _ in range(2))
    other = list(compute_times(spec(jitter=0.05, seed=4)))
    assert first == again
    assert first != other


def test_jitter_has_the_size_asked_for() -> None:
    times = list(compute_times(spec(jitter=0.05, iterations=4000)))
    assert statistics.mean(times) == pytest.approx(0.1, rel=0.01)
    assert statistics.stdev(times) == pytest.approx(0.005, rel=0.1)


def test_stragglers() -> None:
    times = list(compute_times(spec(straggler_every=10, straggler_factor=3.0, iterations=20)))
    assert [n for n, t in enumerate(times, 1) if t != 0.1] == [10, 20]
    assert times[9] == pytest.approx(0.3)
