"""Gavel: shares of time from a linear program, GPUs shared where that pays, in rounds (Narayanan et
al., OSDI 2020).

Of its policies this is the default one, max-min fairness: the job whose speed, times its GPUs, is
lowest is to be as fast as can be, and beyond that all together. Jobs of one model and as many GPUs
are one kind in the program; a combination is a kind, or two that share GPUs, as fast as the
measured pairs say. Rounds give combinations the time that the program does, as close as can be.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from mltcp_tools.clusters.models import Allocation, Model
from mltcp_tools.clusters.policies.placing import pack
from mltcp_tools.clusters.view import Decision, JobState, Shared, View

Kind = tuple[Model, int]
"""Model and GPUs."""
Combination = tuple[Kind, ...]
"""One kind, or two that share GPUs."""


class Gavel:
    """Of the jobs of a kind, those go first that had fewest rounds. GPUs that get free between
    rounds go to who waits."""

    name = "gavel"
    round_s: float | None = 360.0

    def __init__(self) -> None:
        self._round = -1
        self._due: dict[Combination, float] = {}
        self._had: Counter[int] = Counter()

    def decide(self, view: View) -> Decision:
        """Return the jobs that run this round, and those that share GPUs."""
        assert self.round_s is not None
        this = int(view.now_s / self.round_s + 1e-6)
        states = (*view.running, *view.waiting)
        if this == self._round or not states:
            chosen = self._chosen(view.waiting, int(view.free.sum()))
            return self._placed(view, _running(view), chosen)
        self._round = this
        room = int(view.free_without({}).sum())
        shares = _shares(view, states, room)
        self._due = {each: self._due.get(each, 0.0) + more for each, more in shares.items()}
        chosen = self._chosen(states, room)
        kept: dict[int, Allocation] = {}
        for host, *_ in chosen:
            # Of two that part, one keeps the place.
            if host.running and host.partner not in kept:
                kept[host.number] = host.allocation
        return self._placed(view, kept, chosen)

    def _chosen(self, states: Iterable[JobState], room: int) -> list[tuple[JobState, ...]]:
        """Jobs and pairs of them that fit into so many GPUs: what is most due first."""
        queues: dict[Kind, list[JobState]] = {}
        last = sorted(states, key=lambda s: (self._had[s.number], s.running, s.number))[::-1]
        for state in last:
            queues.setdefault((state.job.model, state.job.gpus), []).append(state)
        order = list(self._due) + [(kind,) for kind in queues if (kind,) not in self._due]
        heap = [(-self._due.get(each, 0.0), place) for place, each in enumerate(order)]
        heapq.heapify(heap)
        found = []
        while heap and room:
            _, place = heapq.heappop(heap)
            each = order[place]
            enough = all(len(queues.get(kind, ())) >= n for kind, n in Counter(each).items())
            due = self._due.get(each, 0.0)
            # Who shares does so only where it is due; alone, jobs also take what is left.
            if not enough or each[0][1] > room or (len(each) == 2 and due <= 0):
                continue
            room -= each[0][1]
            self._due[each] = due - 1
            heapq.heappush(heap, (1 - due, place))
            group = tuple(queues[kind].pop() for kind in each)
            self._had.update(state.number for state in group)
            # A host that runs already keeps its place.
            found.append(tuple(sorted(group, key=lambda s: (not s.running, s.number))))
        return found

    @staticmethod
    def _placed(
        view: View, kept: Decision, chosen: Sequence[tuple[JobState, ...]]
    ) -> dict[int, Allocation]:
        free, decided = view.free_without(kept), dict(kept)
        for group in sorted(chosen, key=lambda each: -each[0].job.gpus):
            host = group[0]
            if host.number not in decided:
                if host.job.gpus > free.sum():
                    continue
                decided[host.number] = pack(view, free, host, host.job.gpus)
                for server, gpus in decided[host.number].items():
                    free[server] -= gpus
            # Across servers, a guest would contend with its host for the network as well.
            if len(decided[host.number]) == 1:
                for guest in group[1:]:
                    decided[guest.number] = Shared(decided[host.number], host.number)
        return decided


def _running(view: View) -> dict[int, Allocation]:
    """The running jobs where they are; of two that share, the second one is the guest."""
    return {
        state.number: state.allocation
        if state.partner is None or state.number < state.partner
        else Shared(state.allocation, state.partner)
        for state in view.running
    }


def _shares(view: View, states: Sequence[JobState], room: int) -> dict[Combination, float]:
    """Return how many of each combination run in a mean round."""
    from scipy.optimize import linprog

    counts = Counter((state.job.model, state.job.gpus) for state in states)
    kinds = list(counts)
    combinations: list[Combination] = [(kind,) for kind in kinds]
    speeds: list[tuple[float, ...]] = [(1.0,)] * len(kinds)
    for place, one in enumerate(kinds):
        for two in kinds[place:]:
            both = None
            if view.pairs is not None and one[1] == two[1] <= view.topology.gpus:
                both = view.pairs.slowdowns(one[0], two[0])
            if both is not None and (one != two or counts[one] > 1):
                combinations.append((one, two))
                speeds.append((1 / both[0], 1 / both[1]))
    fast = np.zeros((len(kinds), len(combinations)))
    jobs = np.zeros_like(fast)
    for column, (each, own) in enumerate(zip(combinations, speeds, strict=True)):
        for kind, fast_as in zip(each, own, strict=True):
            row = kinds.index(kind)
            jobs[row, column] += 1
            fast[row, column] += fast_as / counts[kind] * kind[1]
    total = np.array([counts[kind] for kind in kinds], dtype=float)
    width = np.array([each[0][1] for each in combinations], dtype=float)
    least = np.ones((len(kinds), 1))
    nothing = np.zeros((len(kinds), 1))
    found = linprog(
        np.append(-1e-3 * fast.mean(axis=0), -1.0),
        A_ub=np.vstack(
            [np.hstack([jobs, nothing]), np.hstack([-fast, least]), [np.append(width, 0.0)]]
        ),
        b_ub=np.concatenate([total, nothing[:, 0], [room]]),
    )
    return dict(zip(combinations, found.x[:-1].tolist(), strict=True))
