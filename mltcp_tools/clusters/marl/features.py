"""What the agents see, and how much jobs are predicted to slow each other down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mltcp_tools.clusters.models import Allocation
from mltcp_tools.clusters.policies.placing import take, uplink_load
from mltcp_tools.clusters.view import Ints, JobState, View

Floats = npt.NDArray[np.float32]
CANDIDATES = 8
SERVER, LEAF, JOB, GLOBAL = 3, 3, 7, 4
BIDS = 4


@dataclass(frozen=True)
class Observation:
    """servers: shape (leaves, servers of one, SERVER). leaves: (leaves, LEAF). jobs: (CANDIDATES,
    JOB). possible: which of those may be chosen. whole: (GLOBAL,)."""

    servers: Floats
    leaves: Floats
    jobs: Floats
    possible: npt.NDArray[np.bool_]
    whole: Floats


def candidates(view: View, free: Ints, placed: Mapping[int, Allocation]) -> list[JobState]:
    """The waiting jobs that the dispatcher chooses from: the shortest that fit, then by arrival."""
    room = int(free.sum())
    fitting = [s for s in view.waiting if s.number not in placed and s.job.gpus <= room]
    fitting.sort(key=lambda s: (view.remaining_s(s), s.number))
    return fitting[:CANDIDATES]


def observe(view: View, free: Ints, chosen: Sequence[JobState], scale_s: float) -> Observation:
    """The graph with its features, most of them shares of 1. scale_s: a typical job's length."""
    topology = view.topology
    leaves, leaf = topology.leaves, topology.leaf
    padded = np.zeros(leaves * leaf)
    padded[: len(free)] = free
    rooms = padded.reshape(leaves, leaf) / topology.gpus
    servers = np.stack([rooms, rooms == 1.0, rooms == 0.0], axis=2)
    load = np.asarray(uplink_load(view)) * 8 * topology.oversubscription
    load = load / (topology.rate_bps * topology.nics * leaf)
    below = np.stack([rooms.mean(axis=1), load, (rooms == 1.0).mean(axis=1)], axis=1)
    jobs = np.zeros((CANDIDATES, JOB))
    possible = np.zeros(CANDIDATES, dtype=bool)
    for place, state in enumerate(chosen):
        possible[place] = True
        jobs[place] = (
            state.job.gpus / topology.total_gpus,
            np.log1p(view.remaining_s(state) / scale_s),
            np.log1p((view.now_s - state.job.arrival_s) / scale_s),
            comm_share(state),
            float((rooms.sum(axis=1) * topology.gpus >= state.job.gpus).any()),
            float((rooms * topology.gpus >= state.job.gpus).any()),
            np.log1p(view.remaining_s(state) * state.job.gpus / (scale_s * topology.total_gpus)),
        )
    whole = (
        rooms.mean(),
        len(view.waiting) / 32,
        len(view.running) / 32,
        load.mean(),
    )
    return Observation(
        servers.astype(np.float32),
        below.astype(np.float32),
        jobs.astype(np.float32),
        possible,
        np.array(whole, dtype=np.float32),
    )


def comm_share(state: JobState) -> float:
    """Share of its lone iteration in which the job sends."""
    return max(0.0, 1 - state.job.model.compute_s / state.lone_s)


def place_by_bids(view: View, free: Ints, gpus: int, bids: npt.NDArray[np.int64]) -> Allocation:
    """The job goes to the leaves that bid highest; of equals, where it fits whole and most fully.

    Below a leaf it takes the fullest server that holds it, else whole servers first.
    """
    leaves = np.arange(len(free)) // view.topology.leaf
    room = np.bincount(leaves, weights=free)
    fits = room >= gpus
    left = np.where(fits, room - gpus, view.topology.total_gpus - room)
    order = np.lexsort((left, ~fits, -bids))
    servers: list[int] = []
    for leaf in order.tolist():
        own = np.flatnonzero(leaves == leaf)
        whole = own[free[own] >= gpus]
        if not servers and whole.size:
            return {int(whole[np.argmin(free[whole])]): gpus}
        servers += own[np.argsort(-free[own], kind="stable")].tolist()
    return take(free, servers, gpus)


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
        """At least 1."""
        return 1 + max(0.0, float(self.features(view, state, allocation) @ self.weights))
