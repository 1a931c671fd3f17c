# SPDX-License-Identifier: BSD-2-Clause
"""Bootstrap confidence intervals for iterations and jobs that depend on each other.

Replicates are drawn in two stages: repetitions with replacement, and within each drawn repetition
contiguous blocks of iterations (circular, each `BLOCK` long), until the repetition's length is
reached. All jobs of an iteration stay together, so collisions do, too; a job with twice as many
iterations as another gives twice as many to a block. Variants of one run get the same draws,
because a repetition gives every variant the same compute times; this cancels the shared variation
in comparisons. Runs that are compared with each other are drawn independently.

Intervals are percentile intervals of 95 %. Draws are seeded: the same tables give the same
interval. With one repetition the interval lacks the variation between repetitions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from mltcp_tools.lab.analysis.metrics import Floats, iteration_times

REPLICATES = 1000
BLOCK = 10
# A baseline closer to the bound than this leaves nothing to capture but noise.
MIN_ROOM = 0.02
SEED = 20240
_CHUNK_VALUES = 4_000_000


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % confidence interval; `low` and `high` are None where none exists."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Replicates:
    """Mean and p99 iteration time, seconds: of the data, and of each of REPLICATES replicates."""

    mean_value: float
    p99_value: float
    mean: Floats
    p99: Floats


def cube(table: pd.DataFrame, repetitions: list[int], jobs: list[str], iterations: int) -> Floats:
    """Iteration times, seconds, of shape (repetition, iteration, job); NaN where there is none."""
    shape = (len(repetitions), iterations, len(jobs))
    values = np.full(shape, np.nan)
    known = table[
        table["repetition"].isin(repetitions)
        & table["job"].isin(jobs)
        & table["iteration"].between(1, iterations)
    ]
    at = (
        known["repetition"].map({r: i for i, r in enumerate(repetitions)}).to_numpy(int),
        known["iteration"].to_numpy(int) - 1,
        known["job"].map({job: i for i, job in enumerate(jobs)}).to_numpy(int),
    )
    values[at] = iteration_times(known).to_numpy(float)
    return values


def cubes(tables: list[pd.DataFrame]) -> list[Floats]:
    """The cubes of several tables over the same axes (everything that occurs in any of them)."""
    repetitions = sorted({int(r) for table in tables for r in table["repetition"]})
    jobs = sorted({str(job) for table in tables for job in table["job"]})
    iterations = max((int(table["iteration"].max()) for table in tables if len(table)), default=0)
    return [cube(table, repetitions, jobs, iterations) for table in tables]


def shared(*values: Floats) -> npt.NDArray[np.bool_]:
    """Return the mask of places where all cubes have a value."""
    mask: npt.NDArray[np.bool_] = np.ones(values[0].shape, dtype=bool)
    for each in values:
        mask &= np.isfinite(each)
    return mask


def replicate(values: Floats, seed: int = SEED) -> Replicates | None:
    """Resample one cube of iteration times; None when it holds no value.

    Cubes that have values at the same places get the same draws for the same seed.
    """
    present: npt.NDArray[np.bool_] = np.isfinite(values)
    kept = np.flatnonzero(present.sum(axis=(1, 2)))
    values, present = values[kept], present[kept]
    if values.size == 0:
        return None
    # Iterations per (repetition, job): up to the last one that has a value.
    last = values.shape[1] - np.argmax(present[:, ::-1], axis=1)
    lengths = np.where(present.sum(axis=1) > 0, last, 0)
    longest = int(lengths.max())
    blocks = -(-longest // min(BLOCK, max(1, longest // 4)))
    rng = np.random.default_rng(seed)
    chosen = rng.integers(len(values), size=(REPLICATES, len(values)))
    places = rng.random((REPLICATES, len(values), blocks))
    means, p99s = [], []
    step = max(1, _CHUNK_VALUES // values.size)
    for first in range(0, REPLICATES, step):
        part = slice(first, first + step)
        drawn = [
            _draw(values[:, :, job], lengths[:, job], chosen[part], places[part])
            for job in range(values.shape[2])
        ]
        mean, p99 = _mean_and_p99(np.concatenate(drawn, axis=1))
        means.append(mean)
        p99s.append(p99)
    value_mean, value_p99 = _mean_and_p99(values.reshape(1, -1))
    return Replicates(
        float(value_mean[0]), float(value_p99[0]), np.concatenate(means), np.concatenate(p99s)
    )


def _draw(
    values: Floats,
    lengths: npt.NDArray[np.int_],
    chosen: npt.NDArray[np.int_],
    places: Floats,
) -> Floats:
    """One job's values, resampled; NaN where a drawn repetition is shorter than the longest.

    values: (repetition, iteration). lengths: (repetition,). chosen: repetitions, (replicate, n).
    places: where blocks start as shares of the repetition, (replicate, n, block). Returns
    (replicate, anything).
    """
    longest = int(lengths.max())
    length = lengths[chosen][..., np.newaxis]
    starts = np.floor(places * length).astype(int)[..., np.newaxis]
    steps = np.arange(-(-longest // places.shape[-1]))
    at = (starts + steps).reshape(*chosen.shape, -1)[..., :longest] % np.maximum(length, 1)
    drawn: Floats = values[chosen[..., np.newaxis], at]
    drawn[np.broadcast_to(np.arange(longest) >= length, at.shape)] = np.nan
    return drawn.reshape(len(chosen), -1)


def _mean_and_p99(rows: Floats) -> tuple[Floats, Floats]:
    """Per row, ignoring NaN (which sorting moves to the end); linear interpolation."""
    rows = np.sort(rows, axis=1)
    counts = np.isfinite(rows).sum(axis=1)
    with np.errstate(invalid="ignore"):  # a row of nothing but NaN has no mean
        mean = np.nansum(rows, axis=1) / counts
    position = 0.99 * (counts - 1)
    below = np.floor(position).astype(int)
    above = np.minimum(below + 1, counts - 1)
    low = np.take_along_axis(rows, below[:, np.newaxis], axis=1)[:, 0]
    high = np.take_along_axis(rows, above[:, np.newaxis], axis=1)[:, 0]
    return mean, low + (position - below) * (high - low)


def estimate(value: float, replicates: Floats) -> Estimate | None:
    """A value with the interval its replicates give; None when the value is not a number."""
    if not np.isfinite(value):
        return None
    good = replicates[np.isfinite(replicates)]
    if good.size < REPLICATES / 2:
        return Estimate(float(value), None, None)
    low, high = np.percentile(good, (2.5, 97.5))
    return Estimate(float(value), float(low), float(high))


def combine(
    function: Callable[..., Floats | float], *parts: Replicates
) -> dict[str, Estimate | None]:
    """`function` of several variants' means, and of their p99s, each with its interval."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return {
            "mean": estimate(
                float(function(*(np.float64(p.mean_value) for p in parts))),
                np.asarray(function(*(p.mean for p in parts))),
            ),
            "p99": estimate(
                float(function(*(np.float64(p.p99_value) for p in parts))),
                np.asarray(function(*(p.p99 for p in parts))),
            ),
        }


def speedup(slow: Floats | float, fast: Floats | float) -> Floats | float:
    """Return how many times faster `fast` is."""
    return slow / fast


def captured_gain(
    baseline: Floats | float, variant: Floats | float, bound: Floats | float
) -> Floats | float:
    """The variant's gain over the baseline divided by the bound's; NaN where the bound has none."""
    room = np.asarray(baseline) - np.asarray(bound)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(room > 0, (np.asarray(baseline) - np.asarray(variant)) / room, np.nan)


def gain_of_means(
    baseline: Replicates, variant: Replicates, bound: Replicates
) -> tuple[float, Floats] | None:
    """Captured gain by means and its replicates; None where there is less than MIN_ROOM to gain."""
    if not baseline.mean_value >= (1 + MIN_ROOM) * bound.mean_value:
        return None
    value = captured_gain(baseline.mean_value, variant.mean_value, bound.mean_value)
    return float(value), np.asarray(captured_gain(baseline.mean, variant.mean, bound.mean))
