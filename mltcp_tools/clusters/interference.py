# SPDX-License-Identifier: BSD-2-Clause
"""Predictions of how much jobs that share GPUs slow each other down."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mltcp_tools.clusters.pairs import Pairs
from mltcp_tools.clusters.view import JobState

Floats = npt.NDArray[np.float64]
RANK, RIDGE, SWEEPS = 2, 0.3, 30
KNOWN = 0.5
"""Share of the measured pairs that the model is fitted to; the others are held out."""


@dataclass(frozen=True)
class PairModel:
    """Slow-downs of models that share GPUs.

    slow: shape (models, models), of the row's beside the column's: as measured where that pair was
    to be seen, else predicted. error, guessed: mean absolute error of predicted speeds on the pairs
    that were held out, and that of guessing the mean; NaN where none was.
    """

    names: tuple[str, ...]
    slow: Floats
    error: float
    guessed: float

    def slowdowns(self, host: JobState, guest: JobState) -> tuple[float, float]:
        """Of both; models that the pairs don't have are taken for typical ones."""
        try:
            a, b = (self.names.index(each.job.model.name) for each in (host, guest))
        except ValueError:
            typical = float(np.median(self.slow))
            return typical, typical
        return float(self.slow[a, b]), float(self.slow[b, a])


def fit_pairs(pairs: Pairs, seed: int) -> PairModel:
    """From a random half of the measured pairs: the logarithm of a slow-down is what the job bears
    plus what its neighbour does, and a product of RANK further traits of each; alternating least
    squares, as matrices are completed (Koren et al. 2009)."""
    names = tuple(sorted(pairs.models))
    target = np.full((len(names), len(names)), np.nan)
    for (one, other), slow in pairs.slow.items():
        target[names.index(one), names.index(other)] = np.log(slow)
    draw = np.random.default_rng(seed)
    upper = np.triu(draw.random(target.shape) < KNOWN)
    known = (upper | upper.T) & ~np.isnan(target)
    mean = float(target[known].mean())
    rows = 0.1 * draw.standard_normal((len(names), RANK + 1))
    columns = 0.1 * draw.standard_normal((len(names), RANK + 1))
    rows[:, 0] = columns[:, 0] = 0.0
    for _ in range(SWEEPS):
        rows = _solve(target - mean, known, rows, columns)
        columns = _solve(target.T - mean, known.T, columns, rows)
    predicted = mean + rows[:, :1] + columns[:, 0] + rows[:, 1:] @ columns[:, 1:].T
    found = np.exp(np.maximum(0.0, predicted))
    unseen = ~known & ~np.isnan(target)
    speeds = np.exp(-target)
    off = np.abs(1 / found - speeds)[unseen]
    guessed = np.abs(speeds[unseen] - speeds[known].mean())
    nothing = not unseen.any()
    return PairModel(
        names,
        np.where(known, np.exp(target), found),
        float("nan") if nothing else float(off.mean()),
        float("nan") if nothing else float(guessed.mean()),
    )


def _solve(target: Floats, known: npt.NDArray[np.bool_], rows: Floats, columns: Floats) -> Floats:
    """The rows' traits by ridge regression on the columns'; the first trait is what is added."""
    solved = rows.copy()
    for number in range(len(rows)):
        seen = known[number]
        if not seen.any():
            continue
        design = np.column_stack([np.ones(seen.sum()), columns[seen, 1:]])
        left = target[number, seen] - columns[seen, 0]
        gram = design.T @ design + RIDGE * np.eye(RANK + 1)
        solved[number] = np.linalg.solve(gram, design.T @ left)
    return solved
