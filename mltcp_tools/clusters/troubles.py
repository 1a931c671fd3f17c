"""Events of servers besides jobs: failures, slowness, loans to something else."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

import numpy as np

from mltcp_tools.clusters.workload import Workload

Trouble = tuple[float, str, int, float]
"""Seconds since the start, what happens, to which server (of `need`: how many), and a value."""


def needed(needs: Iterable[tuple[float, int]]) -> Iterator[Trouble]:
    """(seconds, servers that something else has from then on) as troubles."""
    for at_s, servers in needs:
        yield at_s, "need", servers, 0.0


def troubles_of(workload: Workload) -> Iterator[Trouble]:
    """Failures and slow servers of a workload, in the order of time, without an end."""
    draw = np.random.default_rng((workload.seed, 7))
    heap: list[Trouble] = []
    failures, slow = workload.failures, workload.stragglers
    for server in range(workload.topology.servers):
        if failures:
            at_s = float(draw.exponential(failures.mtbf_s))
            heapq.heappush(heap, (at_s, "down", server, failures.checkpoint_s))
        if slow:
            at_s = float(draw.exponential(slow.every_s))
            heapq.heappush(heap, (at_s, "slow", server, slow.factor))
    while heap:
        at_s, kind, server, value = heapq.heappop(heap)
        yield at_s, kind, server, value
        if kind == "down":
            assert failures is not None
            heapq.heappush(heap, (at_s + failures.repair_s, "up", server, 0.0))
        elif kind == "up":
            assert failures is not None
            again_s = at_s + float(draw.exponential(failures.mtbf_s))
            heapq.heappush(heap, (again_s, "down", server, failures.checkpoint_s))
        elif value != 1.0:
            assert slow is not None
            heapq.heappush(heap, (at_s + slow.duration_s, "slow", server, 1.0))
        else:
            assert slow is not None
            again_s = at_s + float(draw.exponential(slow.every_s))
            heapq.heappush(heap, (again_s, "slow", server, slow.factor))
