"""What the agents see, and how much jobs are predicted to slow each other down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mltcp_tools.clusters.models import Allocation
from mltcp_tools.clusters.policies.goodput import speed
from mltcp_tools.clusters.policies.placing import uplink_load
from mltcp_tools.clusters.view import JobState, View

Floats = npt.NDArray[np.float32]
CANDIDATES = 24
SERVER, LEAF, JOB, GLOBAL = 3, 3, 10, 5
WEIGHTS = (0.0, 0.25, 1.0, 4.0)
"""What the dispatcher can say that a job is worth."""
USUAL = 2
"""The weight that is given to jobs beyond the CANDIDATES shortest."""
BIDS = 4


@dataclass(frozen=True)
class Observation:
    """servers: shape (leaves, servers of one, SERVER). leaves: (leaves, LEAF). jobs: (CANDIDATES,
    JOB). present: which of those are jobs. whole: (GLOBAL,)."""

    servers: Floats
    leaves: Floats
    jobs: Floats
    present: npt.NDArray[np.bool_]
    whole: Floats


def candidates(view: View) -> list[JobState]:
    """The jobs that the dispatcher weighs: those with the least to do, running or not."""
    states = sorted((*view.running, *view.waiting), key=lambda s: (view.remaining_s(s), s.number))
    return states[:CANDIDATES]


def observe(
    view: View, chosen: Sequence[JobState], scale_s: float, interference: Interference
) -> Observation:
    """The graph with its features, most of them shares of 1. scale_s: a typical job's length."""
    topology = view.topology
    leaves, leaf = topology.leaves, topology.leaf
    padded = np.zeros(leaves * leaf)
    padded[: len(view.free)] = view.free
    rooms = padded.reshape(leaves, leaf) / topology.gpus
    servers = np.stack([rooms, rooms == 1.0, rooms == 0.0], axis=2)
    load = np.asarray(uplink_load(view)) * 8 * topology.oversubscription
    load = load / (topology.rate_bps * topology.nics * leaf)
    below = np.stack([rooms.mean(axis=1), load, (rooms == 1.0).mean(axis=1)], axis=1)
    jobs = np.zeros((CANDIDATES, JOB))
    present = np.zeros(CANDIDATES, dtype=bool)
    for place, state in enumerate(chosen):
        present[place] = True
        jobs[place] = _of_job(view, state, scale_s, interference)
    total = topology.total_gpus
    asked = sum(state.job.gpus for state in (*view.running, *view.waiting))
    whole = (
        rooms.mean(),
        len(view.waiting) / 32,
        len(view.running) / 32,
        load.mean(),
        np.log1p(asked / total),
    )
    return Observation(
        servers.astype(np.float32),
        below.astype(np.float32),
        jobs.astype(np.float32),
        present,
        np.array(whole, dtype=np.float32),
    )


def _of_job(
    view: View, state: JobState, scale_s: float, interference: Interference
) -> tuple[float, ...]:
    total, server = view.topology.total_gpus, view.topology.gpus
    left_s, have = view.remaining_s(state), sum(state.allocation.values())
    slow = interference.slowdown(view, state, state.allocation) if have else 1.0
    return (
        state.job.gpus / total,
        float(np.log1p(left_s / scale_s)),
        float(np.log1p((view.now_s - state.job.arrival_s) / scale_s)),
        comm_share(state),
        float(state.running),
        have / total,
        min(3.0, slow - 1),
        min(3.0, speed(view, state, have) / slow),
        min(3.0, speed(view, state, min(server, state.job.gpus))),
        float(np.log1p(left_s * state.job.gpus / (scale_s * total))),
    )


def comm_share(state: JobState) -> float:
    """Share of its lone iteration in which the job sends."""
    return max(0.0, 1 - state.job.model.compute_s / state.lone_s)


class Interference:
    """Slow-down of a job's iterations where it is placed: linear in a few products of its share of
    sending, how it spans leaves, and what others send over their uplinks. Fitted to this
    simulator's outcomes by ridge regression."""

    def __init__(self, weights: Sequence[float] = (0.0, 0.0, 0.0, 0.0)) -> None:
        self.weights = np.array(weights)

    @staticmethod
    def features(view: View, state: JobState, allocation: Allocation) -> npt.NDArray[np.float64]:
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

    def fit(self, features: Sequence[npt.NDArray[np.float64]], slowdowns: Sequence[float]) -> float:
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
