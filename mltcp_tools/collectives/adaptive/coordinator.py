"""Waiting for stragglers: how long, and when to go on without them.

To wait costs time now (rent). To go on means a partial collective now and another one when the late
ranks come (buy). Who pays rent until it comes to the price, and buys then, never pays more than
twice what somebody does who knows when the late ranks come (the ski rental problem; AdapCC,
ICDCS'24, has size and bandwidth fixed in its code, here they are measured).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Costs:
    """What a collective costs. whole_s: with all ranks, seconds, as measured."""

    whole_s: float
    ranks: int

    def partial_s(self, ready: int) -> float:
        """Seconds of one among `ready` ranks: their share of what a ring moves, 2(m-1)/m."""
        if self.ranks < 2 or ready < 2:
            return 0.0
        return self.whole_s * ((ready - 1) / ready) / ((self.ranks - 1) / self.ranks)

    def buy_s(self, ready: int) -> float:
        """What going on without the late costs more than a whole collective: the one that catches
        up, with as many late ranks and the sum so far."""
        late = self.ranks - ready
        return self.partial_s(ready) + self.partial_s(late + 1) - self.whole_s


@dataclass(frozen=True)
class Decision:
    """ready: the ranks that take part. start_s: when. late: those that don't."""

    start_s: float
    ready: tuple[int, ...]
    late: tuple[int, ...]


def decide(arrivals_s: Sequence[float], costs: Costs, silent_s: float) -> Decision:
    """When to start, and with whom, as ranks come; it looks at no time before it has come.

    arrivals_s: of each rank, infinite for one that never comes. silent_s: after which a rank that
    hasn't come counts as gone. At least two ranks take part.
    """
    order = sorted(range(len(arrivals_s)), key=lambda rank: (arrivals_s[rank], rank))
    if len(order) < 2:
        return Decision(arrivals_s[order[0]] if order else 0.0, tuple(order), ())
    waited_from = arrivals_s[order[0]]
    for count in range(2, len(order) + 1):
        came = arrivals_s[order[count - 1]]
        if count == len(order):
            break
        # All who are here wait from the first arrival on; they buy when rent comes to the price.
        price = max(0.0, costs.buy_s(count))
        limit = max(came, waited_from + min(price, silent_s))
        if arrivals_s[order[count]] > limit:
            return Decision(limit, tuple(sorted(order[:count])), tuple(sorted(order[count:])))
    return Decision(arrivals_s[order[-1]], tuple(range(len(order))), ())


def spent_s(decision: Decision, arrivals_s: Sequence[float], costs: Costs) -> float:
    """Seconds from the first arrival until all that came have the whole sum."""
    first = min(arrivals_s)
    if not decision.late:
        return decision.start_s - first + costs.whole_s
    partial = costs.partial_s(len(decision.ready))
    came = [arrivals_s[rank] for rank in decision.late if arrivals_s[rank] != float("inf")]
    done = decision.start_s + partial
    if came:
        done = max(done, max(came)) + costs.partial_s(len(came) + 1)
    return done - first
