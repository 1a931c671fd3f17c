# SPDX-License-Identifier: BSD-2-Clause
"""Placing jobs: a job keeps its shape, the GPUs that it has on each of its servers.

The shape is that of an observed job, else as few servers as can be. A job waits until its shape is
free, as under Slurm; none is spread over more servers because parts of these are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np

from mltcp_tools.clusters.models import Allocation
from mltcp_tools.clusters.topology import Topology
from mltcp_tools.clusters.view import Ints, JobState, View
from mltcp_tools.clusters.workload import ClusterJob, take

Place = Callable[[View, Ints, JobState], Allocation]
"""(view, free GPUs of each server, job) -> GPUs for the job; none where its shape isn't free."""


def shape(job: ClusterJob, topology: Topology) -> Counter[int]:
    """GPUs on a server -> number of such servers."""
    if job.placement:
        return Counter(gpus for _, gpus in job.placement)
    whole, rest = divmod(job.gpus, topology.gpus)
    return Counter({topology.gpus: whole, rest: 1}) - Counter({0: 1})


def place(view: View, free: Ints, state: JobState) -> Allocation:
    """The fullest server that holds it; for several, those below one leaf, the fullest that does;
    else those below leaves with most room, of equals with idle uplinks. Servers that are whole go
    before parts of others, as jobs that share a NIC contend."""
    topology, own = view.topology, shape(state.job, view.topology)
    if own.total() == 1:
        return fitting(free, np.argsort(free, kind="stable"), own)
    if not fitting(topology.gpus_of, np.argsort(-topology.gpus_of, kind="stable"), own):
        # Servers differ, and too few are as large as the largest.
        enough = free.sum() >= state.job.gpus
        return take(free, np.argsort(-free, kind="stable"), state.job.gpus) if enough else {}
    most = max(own)
    if np.count_nonzero(free >= most) < own[most]:
        return {}
    leaves = topology.leaf_index
    parts = free < topology.gpus_of
    room = np.bincount(leaves, weights=free * (free >= min(own)))
    for leaf in np.argsort(room, kind="stable"):
        if room[leaf] >= state.job.gpus:
            servers = np.flatnonzero(leaves == leaf)
            order = servers[np.lexsort((-free[servers], parts[servers]))]
            if found := fitting(free, order, own):
                return found
    load = uplink_load(view)
    # The fewer leaves the better; of equals, those with idle uplinks.
    order = np.lexsort((-free, parts, load[leaves], -np.minimum(room, state.job.gpus)[leaves]))
    return fitting(free, order, own)


def shuffled(seed: int) -> Place:
    """Any servers that are free, in an order drawn for each job."""

    def place(view: View, free: Ints, state: JobState) -> Allocation:
        order = np.random.default_rng((seed, state.number)).permutation(len(free))
        return fitting(free, order, shape(state.job, view.topology))

    return place


def fitting(free: Ints, order: Ints, own: Counter[int]) -> Allocation:
    """The first servers in the order that have this shape free, its largest parts first; none where
    there aren't enough."""
    found: dict[int, int] = {}
    for gpus in sorted(own, reverse=True):
        servers = [int(each) for each in order[free[order] >= gpus] if int(each) not in found]
        if len(servers) < own[gpus]:
            return {}
        found |= dict.fromkeys(servers[: own[gpus]], gpus)
    return found


def uplink_load(view: View) -> Ints:
    """Of each leaf, the bytes per iteration that running jobs send over its uplinks, per second."""
    load = np.zeros(view.topology.leaves)
    for state in view.running:
        touched = view.topology.leaves_of(state.allocation)
        if len(touched) > 1:
            for leaf in touched:
                load[leaf] += state.job.model.size / state.isolated_s
    return load  # type: ignore[return-value]
