"""Elastic training on servers that come and go: FaPES' scheduler and Lyra's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mltcp_tools.clusters.models import Allocation
from mltcp_tools.clusters.policies.goodput import speed
from mltcp_tools.clusters.policies.orders import start_in_order
from mltcp_tools.clusters.policies.placing import near, pack, place_counts
from mltcp_tools.clusters.simulate import RESTART_S
from mltcp_tools.clusters.view import Decision, JobState, View

PAYS = 10
"""A job grows if that saves so many times what restarting it costs."""


def options(state: JobState, most: int) -> list[int]:
    """GPU counts to choose from: a quarter, half, all, twice and four times the job's own."""
    own = state.job.gpus
    found = {max(1, own // 4), max(1, own // 2), own, 2 * own, 4 * own}
    return sorted(each for each in found if each <= most)


class Fapes:
    """Loans, marginal goodput and restarts only where they pay.

    Every job first gets a base, the shortest job first: what it asked for, or half or a quarter of
    that while all together ask for more than there is. What is left goes step by step to where a
    GPU saves most completion time. A running job grows only if that saves PAYS restarts, and
    shrinks only if one that waits needs what it has.
    """

    name = "fapes"
    round_s: float | None = 120.0

    def decide(self, view: View) -> Decision:
        """New counts, and places for those that change."""
        states = sorted(
            (*view.running, *view.waiting), key=lambda s: (view.remaining_s(s), s.number)
        )
        held = sum(sum(state.allocation.values()) for state in view.running)
        total = int(view.free.sum()) + held
        counts = self._counts(view, states, total)
        kept: dict[int, Allocation] = {
            state.number: state.allocation
            for state in view.running
            if self._keeps(view, state, counts[state.number])
        }
        self._shrink(view, kept, counts)
        return place_counts(
            view, kept, states, counts, lambda state: min(options(state, state.job.gpus))
        )

    @staticmethod
    def _keeps(view: View, state: JobState, count: int) -> bool:
        """Whether the job stays as it is: nothing to win that is worth restarting it."""
        have = sum(state.allocation.values())
        if not count or count <= have:
            return bool(count)
        left_s = view.remaining_s(state)
        saved_s = left_s / speed(view, state, have) - left_s / speed(view, state, count)
        return saved_s < PAYS * RESTART_S

    @staticmethod
    def _shrink(view: View, kept: dict[int, Allocation], counts: Mapping[int, int]) -> None:
        """Jobs that have more than they should give it up if one that waits needs it."""
        wanted = sum(counts[state.number] for state in view.waiting)
        free = int(view.free_without(kept).sum())
        surplus = {
            number: sum(allocation.values()) - counts[number] for number, allocation in kept.items()
        }
        for number in sorted(surplus, key=lambda each: (-surplus[each], each)):
            if free >= wanted or surplus[number] <= 0:
                return
            free += surplus[number]
            del kept[number]

    def _counts(self, view: View, states: Sequence[JobState], total: int) -> dict[int, int]:
        asked = sum(state.job.gpus for state in states)
        part = 1 if asked <= total else 2 if asked <= 2 * total else 4
        counts: dict[int, int] = {}
        for state in states:
            base = max(1, state.job.gpus // part)
            counts[state.number] = base if base <= total else 0
            total -= counts[state.number]
        while total:
            best, most = None, 0.0
            for state in states:
                step = self._step(view, state, counts[state.number], total)
                if step is not None and step[1] > most:
                    best, most = (state.number, step[0]), step[1]
            if best is None:
                break
            total -= best[1] - counts[best[0]]
            counts[best[0]] = best[1]
        return counts

    @staticmethod
    def _step(view: View, state: JobState, have: int, total: int) -> tuple[int, float] | None:
        """The next larger count, and the seconds that each of its GPUs saves."""
        larger = [each for each in options(state, have + total) if each > have]
        if not larger or not have:
            return None
        left_s = view.remaining_s(state)
        saved_s = left_s / speed(view, state, have) - left_s / speed(view, state, larger[0])
        return larger[0], saved_s / (larger[0] - have)

    @staticmethod
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


class Lyra:
    """Lyra's greedy scheduler: base demands first, the shortest job first; the rest of the GPUs to
    the jobs whose completion time that reduces most (a knapsack by saved time per GPU). A job's
    base is what it asked for, its most twice that; servers are reclaimed by preemption cost."""

    name = "lyra"
    round_s: float | None = 300.0

    def decide(self, view: View) -> Decision:
        """Running jobs keep at least what they have; idle GPUs grow them in rounds."""
        kept: dict[int, Allocation] = {s.number: s.allocation for s in view.running}
        waiting = sorted(view.waiting, key=lambda s: (view.remaining_s(s), s.number))
        free = view.free.copy()
        decided = kept | start_in_order(view, free, waiting, pack, backfill=True)
        if any(state.number not in decided for state in view.waiting):
            return decided
        return self._grown(view, decided, int(free.sum()))

    @staticmethod
    def _grown(
        view: View, decided: Mapping[int, Allocation], room: int
    ) -> Mapping[int, Allocation]:
        grown = dict(decided)
        gains = []
        for state in view.running:
            have, own = sum(state.allocation.values()), state.job.gpus
            more = 2 * own - have
            if 0 < more <= room:
                left_s = view.remaining_s(state)
                saved_s = left_s / speed(view, state, have) - left_s / speed(view, state, 2 * own)
                if saved_s > 2 * RESTART_S:
                    gains.append((-saved_s / more, state.number, state))
        free = view.free_without(decided)
        for number, allocation in decided.items():
            if number not in {state.number for state in view.running}:
                for server, gpus in allocation.items():
                    free[server] -= gpus
        for _, number, state in sorted(gains, key=lambda each: each[:2]):
            more = 2 * state.job.gpus - sum(state.allocation.values())
            if more > int(free.sum()):
                continue
            extra = near(view, free, state, more)
            joined = dict(state.allocation)
            for server, gpus in extra.items():
                joined[server] = joined.get(server, 0) + gpus
                free[server] -= gpus
            grown[number] = joined
        return grown
