"""How much jobs are predicted to slow each other down, on shared links and on shared GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mltcp_tools.clusters.models import Allocation
from mltcp_tools.clusters.pairs import Pairs
from mltcp_tools.clusters.policies.placing import uplink_load
from mltcp_tools.clusters.view import JobState, View

Floats = npt.NDArray[np.float64]
RANK, RIDGE, SWEEPS = 2, 0.3, 30
KNOWN = 0.5
"""Share of the measured pairs that the model is fitted to; the others are held out."""


def comm_share(state: JobState) -> float:
    """Share of its lone iteration in which the job sends."""
    return max(0.0, 1 - state.job.model.compute_s / state.lone_s)


class Contention:
    """Slow-down of a job's iterations where it is placed: linear in a few products of its share of
    sending, how it spans leaves, and what others send over their uplinks. Fitted to this
    simulator's outcomes by ridge regression."""

    def __init__(self, weights: Sequence[float] = (0.0, 0.0, 0.0, 0.0)) -> None:
        self.weights = np.array(weights)

    @staticmethod
    def features(view: View, state: JobState, allocation: Allocation) -> Floats:
        """Shape (4,)."""
        topology = view.topology
        touched = sorted({topology.leaf_of(server) for server in allocation})
        share = comm_share(state)
        spans = float(len(touched) > 1)
        load = np.asarray(uplink_load(view)) * 8 * topology.oversubscription
        load = load / (topology.rate_bps * topology.nics * topology.leaf)
        partly = np.mean([gpus < topology.gpus for gpus in allocation.values()])
        several = float(len(allocation) > 1)
        return np.array(
            [
                share * spans,
                share * spans * (topology.oversubscription - 1),
                share * spans * min(3.0, float(load[touched].sum())),
                share * several * float(partly),
            ]
        )

    def fit(self, features: Sequence[Floats], slowdowns: Sequence[float]) -> float:
        """Sets the weights; returns the mean absolute error of the slow-downs."""
        table, target = np.array(features), np.array(slowdowns) - 1
        gram = table.T @ table + 1e-2 * np.eye(table.shape[1])
        self.weights = np.linalg.solve(gram, table.T @ target)
        return float(np.mean(np.abs(table @ self.weights - target)))

    def slowdown(self, view: View, state: JobState, allocation: Allocation) -> float:
        """At least 1; inside one server nobody contends."""
        if len(allocation) < 2:
            return 1.0
        return 1 + max(0.0, float(self.features(view, state, allocation) @ self.weights))


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
        a, b = self._place(host), self._place(guest)
        if a is None or b is None:
            typical = float(np.median(self.slow))
            return typical, typical
        return float(self.slow[a, b]), float(self.slow[b, a])

    def _place(self, state: JobState) -> int | None:
        name = state.job.model.name
        return self.names.index(name) if name in self.names else None


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


@dataclass(frozen=True)
class Interference:
    """What agents predict with: on links and on GPUs."""

    contention: Contention
    pairs: PairModel

    def state(self) -> Mapping[str, object]:
        """As a checkpoint has it: numbers and names only."""
        return {
            "contention": self.contention.weights.tolist(),
            "names": list(self.pairs.names),
            "slow": self.pairs.slow.tolist(),
            "error": self.pairs.error,
            "guessed": self.pairs.guessed,
        }

    @staticmethod
    def of(state: Mapping[str, Any]) -> Interference:
        """From a checkpoint; a ValueError, KeyError or TypeError where it is none."""
        names = tuple(str(name) for name in state["names"])
        weights, slow = np.array(state["contention"], float), np.array(state["slow"], float)
        if weights.shape != (4,) or slow.shape != (len(names), len(names)):
            raise ValueError("weights or slow-downs of another shape")
        if not (np.isfinite(weights).all() and (slow >= 1).all() and np.isfinite(slow).all()):
            raise ValueError("weights or slow-downs that can't be")
        return Interference(
            Contention(weights.tolist()),
            PairModel(names, slow, float(state["error"]), float(state["guessed"])),
        )
