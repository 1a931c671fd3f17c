# SPDX-License-Identifier: BSD-2-Clause
"""The number of GPUs of each job of a cluster, and their places: FaPES' schedule, and what policies
that share GPUs start from.

Every job first gets what it asked for but no more than one server, the one with the fewest GPU
seconds to do first, as Smith's rule (1956) orders machines' work: inside a server nothing is sent
and nobody contends. What is left goes step by step to where a GPU adds most
speed, over the root of its remaining time; a job that grows beyond a server
has whole servers of one leaf. Jobs move only where that saves PAYS restarts, and shrink only where
another one needs the room.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from mltcp_tools.clusters.models import Allocation, Model
from mltcp_tools.clusters.topology import Topology
from mltcp_tools.clusters.view import RESTART_S, Decision, Ints, JobState, View
from mltcp_tools.clusters.workload import alone_s, take

ROUND_S = 300.0
"""Seconds between decisions where nothing arrives or ends."""
PAYS = 4
SPREAD = 2
"""A job gets at most so many times the GPUs it asked for."""


@dataclass(frozen=True)
class Scaled:
    """A job with other GPUs than it asked for.

    batch, learning_rate: in those of the job. An iteration brings as much as `learning_rate` of its
    own ones (AdaScale: Johnson et al. 2020). model: with the computing time of its iterations.
    """

    batch: float
    learning_rate: float
    model: Model


@lru_cache(maxsize=4096)
def scaled(model: Model, own: int, gpus: int, topology: Topology) -> Scaled:
    """A job that asked for `own` GPUs, with `gpus`, and the batch that trains it fastest.

    A GPU never has more of the batch than it had, as it may have no memory for it. Fewer GPUs have
    a smaller batch; more have a larger one only where the noise scale says what that brings.
    """
    share, noise, most_s = gpus / own, model.noise, model.compute_s
    step_s = most_s if model.step_s is None else model.step_s
    if noise is None:
        batch = brings = min(1.0, share)
    else:
        batch = share
        if share > 1 and step_s < most_s:
            # An iteration takes fixed_s + batch * each_s, and brings what `brings` says.
            fixed_s = step_s + alone_s(model, gpus, topology) - most_s
            each_s = (most_s - step_s) / share
            batch = min(max(1.0, math.sqrt(noise * fixed_s / each_s)), share)
        brings = batch * (1 + noise) / (batch + noise)
    compute_s = step_s + (most_s - step_s) * batch / share
    return Scaled(batch, brings, replace(model, compute_s=compute_s))


def speed(view: View, state: JobState, gpus: int) -> float:
    """Share of the job's own speed with so many GPUs, 1 with those it asked for.

    Its performance model is that of a job alone on the first servers: nothing is sent inside
    one server, and beyond a leaf the network is as narrow as it is.
    """
    if gpus < 1:
        return 0.0
    found = scaled(state.job.model, state.job.gpus, gpus, view.topology)
    iteration_s = alone_s(found.model, gpus, view.topology)
    return found.learning_rate * state.isolated_s / iteration_s


def _divide(
    view: View, states: Sequence[JobState], remaining: Mapping[int, float]
) -> dict[int, int]:
    """Number of GPUs of each job."""
    left = int(view.free.sum()) + sum(sum(s.allocation.values()) for s in view.running)
    counts = dict.fromkeys((s.number for s in states), 0)
    heap: list[tuple[float, int, int, JobState]] = []

    def push(state: JobState) -> None:
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
            urgent = -gain / remaining[state.number] ** 0.5
            heapq.heappush(heap, (urgent, state.number, -negative, state))

    for state in sorted(states, key=lambda s: (view.remaining_s(s) * s.job.gpus, s.number)):
        base = min(state.job.gpus, view.topology.gpus)
        if base <= left:
            counts[state.number] = base
            left -= base
    for state in states:
        if counts[state.number]:
            push(state)
    while heap and left:
        _, number, count, state = heapq.heappop(heap)
        if count - counts[number] <= left:
            left -= count - counts[number]
            counts[number] = count
            push(state)
    return counts


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
) -> dict[int, Allocation]:
    """The running jobs that stay where they are."""
    kept: dict[int, Allocation] = {}
    shrinking: list[JobState] = []
    for state in view.running:
        have, want = sum(state.allocation.values()), counts[state.number]
        if want < have:
            shrinking.append(state)
        elif want > have:
            now = speed(view, state, have)
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


def _place(view: View, free: Ints, gpus: int) -> Allocation:
    """So many GPUs, or fewer where neither a server nor a leaf's whole servers hold them: the
    leaf or server where least is left."""
    topology = view.topology
    leaves = topology.leaf_index
    if gpus > topology.gpus:
        whole = np.where(free == topology.gpus_of, free, 0)
        room = np.bincount(leaves, weights=whole).astype(np.int64)
        holding = np.flatnonzero(room >= gpus)
        if holding.size:
            leaf = holding[np.argmin(room[holding])]
        else:
            gpus, leaf = int(room.max()), np.argmax(room)
        if gpus:
            return take(free, np.flatnonzero((leaves == leaf) & (whole > 0)), gpus)
    gpus = min(gpus or topology.gpus, int(free.max()))
    fits = np.flatnonzero(free >= max(1, gpus))
    if not fits.size:
        return {}
    return {int(fits[np.argmin(free[fits])]): gpus}


class Elastic:
    """The plan as a policy."""

    name = "elastic"
    round_s: float | None = ROUND_S

    def decide(self, view: View) -> Decision:
        """New counts, and places for those that change."""
        states = sorted((*view.running, *view.waiting), key=lambda s: s.number)
        remaining = {s.number: max(1.0, view.remaining_s(s)) for s in states}
        counts = _divide(view, states, remaining)
        kept = _kept(view, states, counts, remaining)
        free = view.free_without(kept)
        coming = [s for s in states if s.number not in kept and counts[s.number]]
        # The larger first, as whole servers are what is short.
        coming.sort(key=lambda s: (-min(counts[s.number], view.topology.gpus), remaining[s.number]))
        for state in coming:
            allocation = _place(view, free, counts[state.number])
            if allocation:
                kept[state.number] = allocation
                for server, gpus in allocation.items():
                    free[server] -= gpus
        return kept


def reclaim_cost(view: View, server: int) -> float:
    """GPU seconds that stop if the server leaves: its jobs restart, and are smaller then."""
    cost = 0.0
    for state in view.running:
        if server in state.allocation:
            have = sum(state.allocation.values())
            less = have - state.allocation[server]
            cost += RESTART_S * have + view.remaining_s(state) * (
                1 - speed(view, state, less) / speed(view, state, have)
            )
    return cost
