"""Placing jobs: ways to choose GPUs among the free ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from mltcp_tools.clusters.models import Allocation
from mltcp_tools.clusters.view import Ints, JobState, View

Place = Callable[[View, Ints, JobState, int], Allocation]
"""(view, free GPUs of each server, job, how many) -> GPUs for the job; there are enough."""


def take(free: Ints, servers: Iterable[int], gpus: int) -> dict[int, int]:
    """So many GPUs of the servers in this order."""
    taken: dict[int, int] = {}
    for server in servers:
        if gpus <= 0:
            break
        have = min(int(free[server]), gpus)
        if have > 0:
            taken[int(server)] = have
            gpus -= have
    return taken


def pack(view: View, free: Ints, state: JobState, gpus: int) -> Allocation:
    """One server where it fits, the fullest such; else few servers, below one leaf if possible."""
    if (server := _fullest(free, gpus)) is not None:
        return {server: gpus}
    leaves, room = _leaves(view, free)
    if (leaf := _fullest(room, gpus)) is not None:
        servers = np.flatnonzero(leaves == leaf)
        return take(free, servers[np.argsort(-free[servers], kind="stable")], gpus)
    order = np.lexsort((-free, -room[leaves]))
    return take(free, order, gpus)


def scatter(seed: int) -> Place:
    """Any free GPUs, server by server in an order drawn for each job."""

    def place(view: View, free: Ints, state: JobState, gpus: int) -> Allocation:
        draw = np.random.default_rng((seed, state.number))
        return take(free, draw.permutation(len(free)), gpus)

    return place


def near(view: View, free: Ints, state: JobState, gpus: int) -> Allocation:
    """Below one leaf where it fits; else below leaves whose uplinks the running jobs use least.

    A server that is whole is taken before parts of several, as jobs that share a NIC contend.
    """
    if (server := _fullest(free, gpus)) is not None:
        return {server: gpus}
    leaves, room = _leaves(view, free)
    whole = -np.where(free == view.topology.gpus_of, free, 0)
    if (leaf := _fullest(room, gpus)) is not None:
        servers = np.flatnonzero(leaves == leaf)
        order = np.lexsort((-free[servers], whole[servers]))
        return take(free, servers[order], gpus)
    load = uplink_load(view)
    # The fewer leaves the better; of equals, those with idle uplinks.
    order = np.lexsort((-free, whole, load[leaves], -np.minimum(room, gpus)[leaves]))
    return take(free, order, gpus)


def _fullest(room: npt.NDArray[Any], gpus: int) -> int | None:
    """Of the servers or leaves with room for `gpus`, the one with the least room."""
    fitting = np.flatnonzero(room >= gpus)
    return int(fitting[np.argmin(room[fitting])]) if fitting.size else None


def _leaves(view: View, free: Ints) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """The leaf of each server, and how many GPUs are free below each leaf."""
    leaves = view.topology.leaf_index
    return leaves, np.bincount(leaves, weights=free)


def uplink_load(view: View) -> Ints:
    """Of each leaf, the bytes per iteration that running jobs send over its uplinks, per second."""
    load = np.zeros(view.topology.leaves)
    for state in view.running:
        touched = {view.topology.leaf_of(server) for server in state.allocation}
        if len(touched) > 1:
            for leaf in touched:
                load[leaf] += state.job.model.size / state.lone_s
    return load  # type: ignore[return-value]
