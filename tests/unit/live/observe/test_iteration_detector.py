# SPDX-License-Identifier: BSD-2-Clause
"""Iterations in how far connections have come."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from mltcp_tools.live.observe.iteration_detector import (
    Iteration,
    IterationDetector,
    Rhythm,
    Sample,
    best_rhythm,
    rhythm,
)

STEP_S = 0.005
SIZE = 1_000_000


def samples(
    count: int,
    compute_s: float = 0.1,
    send_s: float = 0.1,
    seed: int = 1,
    pause_in: int | None = None,
    size: int = SIZE,
) -> Iterator[Sample]:
    """A job that computes, then sends evenly. pause_in: the iteration with a timeout half-way."""
    source = random.Random(seed)
    now_s, moved = 100.0, 0
    last_s = now_s
    for number in range(count):
        phases = [(compute_s * source.uniform(0.95, 1.05), 0), (send_s / 2, size // 2)]
        if number == pause_in:
            phases.append((0.2, 0))
        phases.append((send_s / 2, size - size // 2))
        for length_s, amount in phases:
            begin_s, before = now_s, moved
            while now_s < begin_s + length_s:
                now_s += STEP_S * source.uniform(0.8, 1.2)
                passed = min(1.0, (now_s - begin_s) / length_s)
                moved = before + round(amount * passed)
                if amount:
                    last_s = min(now_s, begin_s + length_s)
                yield Sample(now_s, moved, now_s - last_s)


def iterations(known: Rhythm, seen: Iterator[Sample]) -> list[Iteration]:
    detector = IterationDetector(known)
    return [iteration for sample in seen if (iteration := detector.add(sample))]


def known() -> Rhythm:
    found = rhythm(list(samples(30)))
    assert found is not None
    return found


def test_a_rhythm_is_found() -> None:
    found = known()
    assert found.period_s == pytest.approx(0.2, abs=0.01)
    assert found.size == pytest.approx(SIZE, rel=0.02)
    assert 0.03 < found.gap_s < 0.07


def test_steady_traffic_and_chance_have_none() -> None:
    assert rhythm(list(samples(60, compute_s=0.0))) is None
    source = random.Random(1)
    now_s, moved, seen = 0.0, 0, []
    for _ in range(4000):
        now_s += STEP_S
        moved += source.choice((0, 0, 0, 0, 0, 0, source.randrange(1_000_000)))
        seen.append(Sample(now_s, moved, 0.0))
    assert rhythm(seen) is None
    assert rhythm([]) is None


def test_each_iteration_is_one_and_its_time_is_exact_in_the_mean() -> None:
    # The first may be a part of one, and nothing tells that the last has ended.
    found = iterations(known(), samples(102, seed=2))
    assert sum(iteration.count for iteration in found) == 100
    whole_s = found[-1].end_s - found[0].start_s
    assert sum(iteration.duration_s * iteration.count for iteration in found) == pytest.approx(
        whole_s
    )
    assert found[5].silent_s == pytest.approx(0.1, abs=0.02)
    assert all(iteration.size == pytest.approx(SIZE, rel=0.01) for iteration in found)


def test_iterations_without_a_pause_between_count_as_many() -> None:
    seen = list(samples(11, seed=3))
    last = seen[-1]
    # Two at once: from where the last one ended, twice the bytes without a break.
    more = [
        Sample(last.at_s + 0.1 + STEP_S * n, last.moved + SIZE * 2 * n // 40, 0.0)
        for n in range(41)
    ]
    end = Sample(more[-1].at_s + 0.2, more[-1].moved, 0.2)
    found = iterations(known(), iter([*seen, *more, end]))
    assert (found[-1].count, sum(each.count for each in found)) == (2, 12)


def test_the_series_that_repeats_best_is_taken() -> None:
    steady = list(samples(40, compute_s=0.0))
    best = best_rhythm([(0, steady), (1, list(samples(40)))])
    assert best is not None
    assert best[0] == 1
    assert best_rhythm([(0, steady)]) is None
