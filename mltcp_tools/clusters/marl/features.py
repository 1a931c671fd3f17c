"""The agents' view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mltcp_tools.clusters.interference import PairModel
from mltcp_tools.clusters.policies.marginal import speed
from mltcp_tools.clusters.policies.sharing import LOOK, Settled
from mltcp_tools.clusters.view import JobState, View

Floats = npt.NDArray[np.float32]
SERVER, LEAF, PAIR, GLOBAL = 4, 3, 12, 4


@dataclass(frozen=True)
class Question:
    """A leaf's host without a guest, and who may be one."""

    host: JobState
    guests: Sequence[JobState]


@dataclass(frozen=True)
class Observation:
    """servers: shape (leaves, servers of one, SERVER). leaves: (leaves, LEAF). pairs: (leaves,
    LOOK, PAIR), each leaf's host with everyone who may be its guest. present: (leaves, LOOK), which
    of those are jobs. whole: (GLOBAL,)."""

    servers: Floats
    leaves: Floats
    pairs: Floats
    present: npt.NDArray[np.bool_]
    whole: Floats


def observe(
    view: View,
    settled: Settled,
    asked: Mapping[int, Question],
    scale_s: float,
    known: PairModel,
) -> Observation:
    """The graph as it is settled so far, most features shares of 1. scale_s: a typical job's
    length."""
    topology = view.topology
    leaves, leaf = topology.leaves, topology.leaf
    used, shared = np.zeros((2, leaves * leaf))
    guests = {each.host for each in settled.decided.values() if hasattr(each, "host")}
    for number, allocation in settled.decided.items():
        if not hasattr(allocation, "host"):
            for server, gpus in allocation.items():
                used[server] += gpus / topology.gpus
                shared[server] += gpus / topology.gpus * (number in guests)
    used, shared = used.reshape(leaves, leaf), shared.reshape(leaves, leaf)
    servers = np.stack([used, shared, used == 0.0, used - shared], axis=2)
    below = np.stack([used.mean(axis=1), shared.mean(axis=1), (used == 0.0).mean(axis=1)], axis=1)
    pairs = np.zeros((leaves, LOOK, PAIR))
    present = np.zeros((leaves, LOOK), dtype=bool)
    for number, question in asked.items():
        for place, guest in enumerate(question.guests):
            present[number, place] = True
            pairs[number, place] = _pair(view, settled, question.host, guest, place, scale_s, known)
    total = topology.total_gpus
    whole = (
        used.mean(),
        shared.mean(),
        float(np.log1p(len(settled.queue) / total)),
        float(np.log1p(len(settled.open) / total)),
    )
    return Observation(
        servers.astype(np.float32),
        below.astype(np.float32),
        pairs.astype(np.float32),
        present,
        np.array(whole, dtype=np.float32),
    )


def _pair(
    view: View,
    settled: Settled,
    host: JobState,
    guest: JobState,
    place: int,
    scale_s: float,
    known: PairModel,
) -> tuple[float, ...]:
    slow, guest_slow = known.slowdowns(host, guest)
    mine, its = settled.left_s[host.number], settled.left_s[guest.number]
    gpus = sum(settled.decided[host.number].values())
    return (
        1 / slow,
        1 / guest_slow,
        1 / slow + 1 / guest_slow - 1,
        float(np.log1p(mine / scale_s)),
        float(np.log1p(its / scale_s)),
        float(np.clip(np.log(max(its, 1.0) / max(mine, 1.0)), -3, 3)),
        float(np.log1p((view.now_s - guest.job.arrival_s) / scale_s)),
        gpus / view.topology.gpus,
        place / LOOK,
        min(2.0, speed(view, guest, gpus)),
        min(3.0, scale_s / max(mine, 1.0)) / 3,
        min(3.0, scale_s / max(its, 1.0)) / 3,
    )
