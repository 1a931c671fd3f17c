"""How many GPUs each job of a cluster has, and where: FaPES' schedule, and what agents' weights and
bids make of it.

Every job first gets what it asked for but no more than one server, the shortest one first: inside a
server nothing is sent and nobody contends. What is left goes step by step to where a GPU adds most
speed, times the job's weight, over the root of its remaining time; a job that grows beyond a server
has whole servers of one leaf. Jobs move only where that saves PAYS restarts, and shrink only where
another one needs the room.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from mltcp_tools.clusters.models import Allocation
from mltcp_tools.clusters.policies.goodput import speed
from mltcp_tools.clusters.policies.placing import take
from mltcp_tools.clusters.simulate import RESTART_S
from mltcp_tools.clusters.view import Decision, Ints, JobState, View

ROUND_S = 300.0
"""Seconds between decisions where nothing arrives or ends."""
PAYS = 4
SPREAD = 2
"""A job gets at most so many times the GPUs it asked for, as under `goodput`."""

Slowdown = Callable[[View, JobState, Allocation], float]
"""Predicted slow-down of a job's iterations where it is placed, at least 1."""


def decide(
    view: View,
    weights: Mapping[int, float] | None = None,
    bids: npt.NDArray[np.int64] | None = None,
    slowdown: Slowdown = lambda view, state, allocation: 1.0,
) -> Decision:
    """Who runs where, with the jobs' weights, 1 for those without one, and each leaf's bid."""
    weights = {} if weights is None else weights
    bids = np.zeros(view.topology.leaves, dtype=np.int64) if bids is None else bids
    states = sorted((*view.running, *view.waiting), key=lambda s: s.number)
    remaining = {s.number: max(1.0, view.remaining_s(s)) for s in states}
    counts = _divide(view, states, weights, remaining)
    kept = _kept(view, states, counts, remaining, slowdown)
    free = view.free_without(kept)
    coming = [s for s in states if s.number not in kept and counts[s.number]]
    # The larger first, as whole servers are what is short.
    coming.sort(key=lambda s: (-min(counts[s.number], view.topology.gpus), remaining[s.number]))
    for state in coming:
        allocation = _place(view, free, counts[state.number], bids)
        if allocation:
            kept[state.number] = allocation
            for server, gpus in allocation.items():
                free[server] -= gpus
    return kept


def _divide(
    view: View,
    states: Sequence[JobState],
    weights: Mapping[int, float],
    remaining: Mapping[int, float],
) -> dict[int, int]:
    """Number of GPUs of each job."""
    worth = {s.number: weights.get(s.number, 1.0) for s in states}
    if not any(worth.values()):
        worth = dict.fromkeys(worth, 1.0)  # somebody must run
    left = int(view.free.sum()) + sum(sum(s.allocation.values()) for s in view.running)
    counts = dict.fromkeys(worth, 0)
    asking = [s for s in states if worth[s.number]]
    for state in sorted(asking, key=lambda s: (remaining[s.number] / worth[s.number], s.number)):
        base = min(state.job.gpus, view.topology.gpus)
        if base <= left:
            counts[state.number] = base
            left -= base
    heap: list[tuple[float, int, int, JobState]] = []
    for state in asking:
        if counts[state.number]:
            _push(heap, view, state, counts, worth, remaining)
    while heap and left:
        _, number, count, state = heapq.heappop(heap)
        if count - counts[number] <= left:
            left -= count - counts[number]
            counts[number] = count
            _push(heap, view, state, counts, worth, remaining)
    return counts


def _push(
    heap: list[tuple[float, int, int, JobState]],
    view: View,
    state: JobState,
    counts: Mapping[int, int],
    worth: Mapping[int, float],
    remaining: Mapping[int, float],
) -> None:
    """The step up that adds most speed per GPU."""
    have = counts[state.number]
    before = speed(view, state, have)
    steps = [
        ((speed(view, state, count) - before) / (count - have), -count)
        for count in sizes(view, state)
        if count > have
    ]
    if steps and max(steps)[0] > 0:
        gain, negative = max(steps)
        gain *= worth[state.number] / remaining[state.number] ** 0.5
        heapq.heappush(heap, (-gain, state.number, -negative, state))


def sizes(view: View, state: JobState) -> list[int]:
    """GPU counts to choose from: parts of a server, and whole servers up to a leaf's."""
    server, own = view.topology.gpus, state.job.gpus
    parts = {1, 2, server // 2, own} | {server * n for n in range(1, view.topology.leaf + 1)}
    most = min(SPREAD * own, server * view.topology.leaf)
    return sorted(n for n in parts if 0 < n <= most and (n <= server or n % server == 0))


def _kept(
    view: View,
    states: Sequence[JobState],
    counts: Mapping[int, int],
    remaining: Mapping[int, float],
    slowdown: Slowdown,
) -> dict[int, Allocation]:
    """The running jobs that stay where they are."""
    kept: dict[int, Allocation] = {}
    shrinking: list[JobState] = []
    for state in view.running:
        have, want = sum(state.allocation.values()), counts[state.number]
        slow = slowdown(view, state, state.allocation)
        if want < have:
            shrinking.append(state)
        elif want > have or slow > 1:
            now = speed(view, state, have) / slow
            saved_s = remaining[state.number] * (1 / now - 1 / speed(view, state, want))
            if saved_s > PAYS * RESTART_S:
                continue
        kept[state.number] = state.allocation
    need = sum(counts[state.number] for state in states if state.number not in kept)
    free = int(view.free_without(kept).sum())
    # Of those that should shrink, the longest make room first.
    for state in sorted(shrinking, key=lambda s: (-remaining[s.number], s.number)):
        if free >= need:
            break
        free += sum(state.allocation.values()) - counts[state.number]
        del kept[state.number]
    return kept


def _place(view: View, free: Ints, gpus: int, bids: npt.NDArray[np.int64]) -> Allocation:
    """So many GPUs, or fewer where neither a server nor a leaf's whole servers hold them: the
    leaves that bid highest first, of equals where least is left."""
    topology = view.topology
    leaves = np.arange(len(free)) // topology.leaf
    if gpus > topology.gpus:
        whole = np.where(free == topology.gpus, free, 0)
        room = np.bincount(leaves, weights=whole).astype(np.int64)
        holding = np.flatnonzero(room >= gpus)
        if holding.size:
            leaf = holding[np.lexsort((room[holding], -bids[holding]))[0]]
        else:
            gpus, leaf = int(room.max()), np.argmax(room)
        if gpus:
            return take(free, np.flatnonzero((leaves == leaf) & (whole > 0)), gpus)
    gpus = min(gpus or topology.gpus, int(free.max()))
    fits = np.flatnonzero(free >= max(1, gpus))
    if not fits.size:
        return {}
    return {int(fits[np.lexsort((free[fits], -bids[leaves[fits]]))[0]]): gpus}
