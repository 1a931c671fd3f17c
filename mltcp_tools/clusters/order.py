"""Priorities of jobs in Sincronia's order: a job's burst is a coflow, its links are the ports."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from mltcp_tools.clusters.topology import Topology
from mltcp_tools.clusters.turns import Sharing


def priorities(topology: Topology, jobs: Sequence[Sharing]) -> dict[str, int]:
    """Job -> priority, 0 first, all different; demands are the seconds that links need."""
    from mltcp_tools.planning.coflows import bssi

    rates = topology.rates_bps
    demands = []
    for job in jobs:
        demand: dict[int, float] = defaultdict(float)
        for phase in job.phases:
            for link, times in phase.crossings.items():
                demand[link] += phase.size * 8 * times / rates[link]
        demands.append(dict(demand))
    return {jobs[number].name: place for place, number in enumerate(bssi(demands))}
