# SPDX-License-Identifier: BSD-2-Clause
"""Measures of iterations and bursts: pure functions from tables to numbers. Times are seconds.

Definitions that need more than a name:

overlap
    The fraction of communication time during which at least one other job communicates too. Only
    the time while all jobs of a repetition still run counts. Waiting for the link counts as
    communication, so the overlap of the bound is not 0.

interleaved from
    An iteration of a job is undisturbed when it communicates for at most 1.5 times the job's
    isolated communication time: it lost less than half a burst to others. A window of 10
    consecutive iterations holds when at least 75 % of its (job, iteration) pairs are undisturbed.
    The jobs are interleaved from iteration k when the window that starts at k holds and at least
    90 % of all windows from k to the end hold. At least 20 iterations, and a quarter of the run,
    must remain after k. One late outlier affects at most ten windows, and doesn't change the
    result. Random interleaving at the start doesn't count, because later windows must hold, too.
    With these thresholds the bound is interleaved from the start on links loaded up to 95 % with
    5 % jitter, and fair sharing there is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

UNDISTURBED = 1.5
WINDOW = 10
WINDOW_SHARE = 0.75
HOLDING_SHARE = 0.9
MIN_REMAINING = 20
SETTLED_FROM = 10

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Distribution:
    """Mean and percentiles of a set of times, seconds; `count` is their number."""

    count: int
    mean: float
    p50: float
    p95: float
    p99: float


def distribution(values: pd.Series[float]) -> Distribution | None:
    """Mean, median, 95th and 99th percentile (linear interpolation); None without values."""
    array = values.dropna().to_numpy(dtype=float)
    if array.size == 0:
        return None
    p50, p95, p99 = (float(q) for q in np.percentile(array, (50, 95, 99)))
    return Distribution(int(array.size), float(array.mean()), p50, p95, p99)


def iteration_times(table: pd.DataFrame) -> pd.Series[float]:
    """Duration of each row of a table of iterations, seconds."""
    return table["end_s"] - table["start_s"]


def settled_mean(table: pd.DataFrame) -> float | None:
    """Mean of the iteration times from iteration SETTLED_FROM on; None without any."""
    times = iteration_times(table[table["iteration"] >= SETTLED_FROM])
    return float(times.mean()) if len(times) else None


def with_time_of(table: pd.DataFrame, other: pd.DataFrame, column: str) -> pd.DataFrame:
    """`table` with another table's times (seconds) of the same iterations as a column.

    Iterations are paired by repetition, job and number; the column is NaN where `other` has none.
    """
    keys = ["repetition", "job", "iteration"]
    times = other[keys].assign(**{column: iteration_times(other)})
    return table.merge(times, on=keys, how="left")


def ratio_of_means(table: pd.DataFrame, column: str) -> float | None:
    """Mean iteration time over the mean of `column`, where it has a value; None without any."""
    if column not in table.columns:
        return None
    pairs = table[table[column].notna()]
    if pairs.empty or pairs[column].sum() <= 0:
        return None
    return float(iteration_times(pairs).mean() / pairs[column].mean())


@dataclass(frozen=True)
class Overlap:
    """Overlap over the whole run and its first and last third (by time), fractions of 0..1."""

    run: float
    first_third: float | None
    last_third: float | None


def overlap(bursts: pd.DataFrame) -> tuple[Overlap | None, dict[str, float]]:
    """Overlap of one variant's bursts, pooled over repetitions, and the same per job over the run.

    None where there is no communication time.
    """
    parts = [_shared_time(rows) for _, rows in bursts.groupby("repetition")]
    if not parts:
        return None, {}
    table = pd.concat(parts, ignore_index=True)
    total = table["busy_s"].sum()
    if total <= 0:
        return None, {}

    def share(rows: pd.DataFrame) -> float | None:
        busy = rows["busy_s"].sum()
        return float(rows["shared_s"].sum() / busy) if busy > 0 else None

    jobs = {str(job): share(rows) for job, rows in table.groupby("job")}
    return (
        Overlap(
            run=float(table["shared_s"].sum() / total),
            first_third=share(table[table["third"] == 0]),
            last_third=share(table[table["third"] == 2]),
        ),
        {job: value for job, value in jobs.items() if value is not None},
    )


def _shared_time(bursts: pd.DataFrame) -> pd.DataFrame:
    """Per burst of one repetition: its duration, the part of it that others share, its third."""
    until_s = float(bursts.groupby("job")["end_s"].max().min())
    first_s = float(bursts["start_s"].min())
    rows = bursts[bursts["start_s"] <= until_s]
    start, end = rows["start_s"].to_numpy(float), rows["end_s"].to_numpy(float)
    end = np.minimum(end, until_s)
    # The number of jobs communicating changes by one at each start and end; the time spent with two
    # or more of them is piecewise linear between those instants, so interpolation is exact.
    instants = np.concatenate([start, end])
    steps = np.concatenate([np.ones_like(start), -np.ones_like(end)])
    order = np.argsort(instants, kind="stable")
    instants = instants[order]
    present = np.cumsum(steps[order])
    shared = np.concatenate([[0.0], np.cumsum(np.diff(instants) * (present[:-1] >= 2))])
    third = np.floor(3 * (start - first_s) / max(until_s - first_s, 1e-9)).clip(0, 2)
    return pd.DataFrame(
        {
            "job": rows["job"].to_numpy(),
            "busy_s": end - start,
            "shared_s": np.interp(end, instants, shared) - np.interp(start, instants, shared),
            "third": third.astype(int),
        }
    )


def interleaved_from(table: pd.DataFrame, isolated_comm_s: Mapping[str, float]) -> int | None:
    """The iteration from which the jobs of one repetition are interleaved (see the module's text).

    `table` holds one repetition's iterations; those that started after the first job had finished
    are left out. Where jobs have different numbers of iterations, the result is a number of the job
    with the fewest, and others' are scaled to it. None: not interleaved, or too few iterations.
    """
    until_s = table.groupby("job")["end_s"].max().min()
    own = table.groupby("job")["iteration"].transform("max")
    number = np.ceil(table["iteration"] * own.min() / own).astype(int)
    rows = table[table["start_s"] < until_s]
    calm = rows["comm_s"] <= UNDISTURBED * rows["job"].map(dict(isolated_comm_s)).astype(float)
    per_iteration = calm.groupby(number).agg(["sum", "count"]).sort_index()
    good = per_iteration["sum"].rolling(WINDOW).sum().to_numpy(float)[WINDOW - 1 :]
    seen = per_iteration["count"].rolling(WINDOW).sum().to_numpy(float)[WINDOW - 1 :]
    if good.size == 0:
        return None
    holds = good >= WINDOW_SHARE * seen
    windows_left = np.arange(holds.size, 0, -1)
    holding = np.cumsum(holds[::-1])[::-1] / windows_left
    remaining = windows_left + WINDOW - 1
    enough = remaining >= max(MIN_REMAINING, len(per_iteration) / 4)
    found = np.flatnonzero(holds & (holding >= HOLDING_SHARE) & enough)
    return int(per_iteration.index[found[0]]) if found.size else None


def typical(values: list[int | None]) -> float | None:
    """Median over repetitions, where None counts as later than any number; None when it is that."""
    if not values:
        return None
    median = float(np.median([np.inf if value is None else value for value in values]))
    return median if np.isfinite(median) else None


def sending_rate(bursts: pd.DataFrame) -> float | None:
    """Bits per second of one variant's bursts, over the time in which any job communicates, or
    None."""
    bits = busy_s = 0.0
    for _, rows in bursts.groupby("repetition"):
        ordered = rows.sort_values("start_s")
        end = ordered["end_s"].cummax().to_numpy(float)
        before = np.concatenate([[-np.inf], end[:-1]])
        busy_s += float((end - np.maximum(ordered["start_s"], before)).clip(lower=0).sum())
        bits += 8 * float(rows["bytes"].sum())
    return bits / busy_s if busy_s > 0 and bits > 0 else None


def utilisation(variants: pd.DataFrame, rate_bps: int | None) -> float | None:
    """Bits the bottleneck carried over what its rate allows, mean over repetitions, or None."""
    rows = variants[(variants["duration_s"] > 0) & variants["link_bytes"].notna()]
    if rate_bps is None or rows.empty:
        return None
    return float((rows["link_bytes"] * 8 / rows["duration_s"] / rate_bps).mean())
