# SPDX-License-Identifier: BSD-2-Clause
"""The measures against values worked out by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from support.run_folders import LONE_COMM_S, simulated_tables

from mltcp_tools.lab.analysis import metrics

NAMES = ["job-1", "job-2", "job-3", "job-4"]


def iterations(comm_s: list[list[float]], compute_s: float = 1.0) -> pd.DataFrame:
    """One repetition: comm_s[job][iteration]."""
    rows = []
    for job, values in enumerate(comm_s):
        ends = np.cumsum([compute_s + value for value in values])
        for number, (end_s, value) in enumerate(zip(ends, values, strict=True), start=1):
            rows.append(
                {
                    "repetition": 1,
                    "job": f"job-{job}",
                    "iteration": number,
                    "start_s": end_s - compute_s - value,
                    "end_s": end_s,
                    "comm_s": value,
                }
            )
    return pd.DataFrame(rows)


def bursts(*rows: tuple[str, float, float], repetition: int = 1) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {"repetition": repetition, "job": job, "start_s": start, "end_s": end}
            for job, start, end in rows
        ]
    )


def test_distribution() -> None:
    found = metrics.distribution(pd.Series(np.arange(1.0, 102.0)))
    assert found is not None
    assert (found.count, found.mean, found.p50, found.p95, found.p99) == (101, 51, 51, 96, 100)
    assert metrics.distribution(pd.Series(dtype=float)) is None


def test_settled_mean_starts_at_the_tenth_iteration() -> None:
    table = iterations([[9.0] * 9 + [1.0, 3.0]])
    assert metrics.settled_mean(table) == pytest.approx(1.0 + 2.0)
    assert metrics.settled_mean(table[:9]) is None


def test_ratio_of_means_uses_the_iterations_both_have() -> None:
    slow, fast = iterations([[3.0, 3.0, 99.0]]), iterations([[1.0, 1.0]])
    paired = metrics.with_time_of(slow, fast, "fast_s")
    assert metrics.ratio_of_means(paired, "fast_s") == pytest.approx(2.0)
    assert metrics.ratio_of_means(paired[2:], "fast_s") is None
    assert metrics.ratio_of_means(paired, "slow_s") is None


def test_overlap_by_hand() -> None:
    # Both run until 6. a is busy 4 s of that, b 3 s; they share 1..2 and 5..6.
    table = bursts(("a", 0, 2), ("b", 1, 3), ("a", 4, 6), ("b", 5, 8))
    found, jobs = metrics.overlap(table)
    assert found is not None
    assert found.run == pytest.approx(4 / 7)
    assert jobs == {"a": pytest.approx(2 / 4), "b": pytest.approx(2 / 3)}
    # Thirds of 0..6 by the start of a burst: both first bursts, and the two last ones.
    assert found.first_third == pytest.approx(2 / 4)
    assert found.last_third == pytest.approx(2 / 3)


def test_overlap_counts_three_jobs_at_once_as_shared_by_each() -> None:
    found, jobs = metrics.overlap(bursts(("a", 0, 2), ("b", 0, 2), ("c", 0, 2)))
    assert found is not None
    assert found.run == pytest.approx(1.0)
    assert set(jobs.values()) == {1.0}


def test_alternating_bursts_overlap_by_zero_per_repetition() -> None:
    time_shifts = [("a", 0.0, 1.0), ("b", 1.0, 2.0), ("a", 2.0, 3.0), ("b", 3.0, 4.0)]
    table = pd.concat([bursts(*time_shifts), bursts(("a", 0, 4), ("b", 4, 5), repetition=2)])
    found, _ = metrics.overlap(table)
    assert found is not None
    assert found.run == pytest.approx(0.0)


def test_overlap_without_communication() -> None:
    assert metrics.overlap(bursts(("a", 0, 1)).iloc[:0]) == (None, {})
    assert metrics.overlap(bursts(("a", 1, 1), ("b", 1, 1)))[0] is None


GOOD, BAD = [1.0], [3.0]


@pytest.mark.parametrize(
    ("comm_s", "since"),
    [
        # A window of 10 holds with two bad iterations in it, so two before the change count.
        ([BAD * 30 + GOOD * 70] * 2, 29),
        ([GOOD * 100] * 2, 1),
        ([BAD * 100] * 2, None),
        (
            [
                BAD * 30 + GOOD * 50 + [50.0] + GOOD * 19,
                BAD * 30 + GOOD * 50 + [50.0] * 2 + GOOD * 18,
            ],
            29,
        ),
        ([GOOD * 30 + BAD * 30 + GOOD * 40] * 2, 59),
        ([BAD * 85 + GOOD * 15] * 2, None),  # fewer than 20 remain
        ([GOOD * 50 + BAD * 50] * 2, None),
        ([GOOD * 19] * 2, None),
        ([GOOD * 20] * 2, 1),
        # The second job's comm is short only once the first has gone.
        ([BAD * 30, BAD * 30 + GOOD * 100], None),
    ],
)
def test_jobs_are_interleaved_from_the_change_on(
    comm_s: list[list[float]], since: int | None
) -> None:
    lone = {f"job-{i}": 1.0 for i in range(len(comm_s))}
    assert metrics.interleaved_from(iterations(comm_s), lone) == since


def test_interleaved_counts_iterations_of_the_shortest_job() -> None:
    # Twice as many iterations in the same time: compute 1 and communication 1 against 2 and 2.
    fast = iterations([[3.0] * 30 + [1.0] * 170], compute_s=1.0)
    slow = iterations([[6.0] * 15 + [2.0] * 85], compute_s=2.0).assign(job="slow")
    table = pd.concat([fast, slow])
    assert metrics.interleaved_from(table, {"job-0": 1.0, "slow": 2.0}) == 14


@pytest.mark.parametrize("seed", range(5))
def test_interleaved_tells_bound_from_fair_on_a_nearly_full_link(seed: int) -> None:
    lone = dict.fromkeys(NAMES, LONE_COMM_S)
    bound, _ = simulated_tables("bound", NAMES, 100, seed)
    fair, _ = simulated_tables("fair", NAMES, 100, seed)
    assert metrics.interleaved_from(bound, lone) in range(1, 6)
    assert metrics.interleaved_from(fair, lone) is None


def test_typical_counts_none_as_later_than_all() -> None:
    assert metrics.typical([3, None, 7]) == 7
    assert metrics.typical([3, None, None]) is None
    assert metrics.typical([3, 5]) == 4
    assert metrics.typical([3, None]) is None
    assert metrics.typical([]) is None


def test_the_rate_of_sending_counts_no_time_twice_and_no_silence() -> None:
    bursts = pd.DataFrame(
        [
            {"repetition": 1, "start_s": 0.0, "end_s": 2.0, "bytes": 10e6},
            {"repetition": 1, "start_s": 0.5, "end_s": 1.0, "bytes": 10e6},
            {"repetition": 1, "start_s": 1.5, "end_s": 3.0, "bytes": 10e6},
            {"repetition": 1, "start_s": 5.0, "end_s": 6.0, "bytes": 10e6},
            {"repetition": 2, "start_s": 0.0, "end_s": 1.0, "bytes": 10e6},
        ]
    )
    assert metrics.sending_rate(bursts) == pytest.approx(8 * 50e6 / 5)
    assert metrics.sending_rate(bursts[:0]) is None


def test_utilisation() -> None:
    variants = pd.DataFrame({"duration_s": [1.0, 2.0, 0.0], "link_bytes": [12.5e6, 12.5e6, np.nan]})
    assert metrics.utilisation(variants, 200_000_000) == pytest.approx((0.5 + 0.25) / 2)
    assert metrics.utilisation(variants, None) is None
    assert metrics.utilisation(variants[2:], 200_000_000) is None
