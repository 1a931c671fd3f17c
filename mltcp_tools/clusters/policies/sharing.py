"""Policies that let two jobs share the same GPUs where `pairs` says how that slows them down.

The plan (plan.py) says who has GPUs, those with the least work first; then each of those inside one
server may have a guest of those that wait. Who shares stays together until one of both ends or
goes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from mltcp_tools.clusters.models import Allocation
from mltcp_tools.clusters.pairs import Pairs
from mltcp_tools.clusters.policies.plan import ROUND_S, SPREAD, decide
from mltcp_tools.clusters.view import Decision, JobState, Shared, View
from mltcp_tools.errors import UsageError

LOOK = 16
"""A host chooses among the first so many of those that wait and fit."""


@dataclass
class Settled:
    """The decisions before anybody new is paired. open: hosts without a guest. queue: who waits;
    both with the fewest GPU seconds to do first. left_s: what each has to do, alone. spread: how
    many times the GPUs that it asked for a guest may have."""

    decided: dict[int, Allocation]
    open: list[JobState]
    queue: list[JobState]
    left_s: dict[int, float]
    pairs: Pairs
    spread: int

    def guests(self, host: JobState) -> list[JobState]:
        """The first LOOK jobs that the host could share its GPUs with."""
        gpus = sum(self.decided[host.number].values())
        found: list[JobState] = []
        for state in self.queue:
            fits = gpus <= self.spread * state.job.gpus
            if fits and self.pairs.slowdowns(host.job.model, state.job.model) is not None:
                found.append(state)
                if len(found) == LOOK:
                    break
        return found

    def pair(self, host: JobState, guest: JobState) -> None:
        """The guest gets the host's GPUs, too."""
        self.decided[guest.number] = Shared(self.decided[host.number], host.number)
        self.open.remove(host)
        self.queue.remove(guest)


def settle(view: View, spread: int = SPREAD) -> Settled:
    """Return the plan's decisions on those who aren't guests; guests stay where their hosts do."""
    if view.pairs is None:
        raise UsageError("policies that share GPUs need measured pairs: add --pairs gavel:FILE.")
    states = {state.number: state for state in (*view.running, *view.waiting)}
    left_s = {number: view.remaining_s(state) for number, state in states.items()}
    guests = {
        state.number: state.partner
        for state in view.running
        # Of two that share, the one with less to do counts as the host.
        if state.partner is not None
        and (left_s[state.partner], state.partner) < (left_s[state.number], state.number)
    }
    owners = tuple(state for state in view.running if state.number not in guests)
    decided: dict[int, Allocation] = dict(decide(replace(view, running=owners), spread))
    for guest, host in guests.items():
        if decided.get(host) == states[guest].allocation:
            decided[guest] = Shared(decided[host], host)
    alone = decided.keys() - guests.values() - guests.keys()

    def least(numbers: Iterable[int]) -> list[JobState]:
        key = {n: (view.remaining_gpu_s(states[n]), n) for n in numbers}
        return [states[n] for n in sorted(key, key=key.__getitem__)]

    return Settled(
        decided,
        # Across servers, a guest would contend with its host for the network as well.
        least(number for number in alone if len(decided[number]) == 1),
        least(states.keys() - decided.keys()),
        left_s,
        view.pairs,
        spread,
    )


Slowdowns = Callable[[JobState, JobState], tuple[float, float]]
"""(host, guest) -> predicted slow-downs of both."""


class Sharing:
    """Each host, the one with the least to do first, takes a guest that `choose` names, if any."""

    round_s: float | None = ROUND_S

    def __init__(self, name: str) -> None:
        self.name = name

    def choose(self, settled: Settled, host: JobState, guests: list[JobState]) -> JobState | None:
        """The next in line, whoever that is: rivals that know memory but no interference."""
        return guests[0]

    def decide(self, view: View) -> Decision:
        """Return the jobs that have GPUs, and those that share them."""
        settled = settle(view)
        for host in list(settled.open):
            guests = settled.guests(host)
            guest = self.choose(settled, host, guests) if guests else None
            if guest is not None:
                settled.pair(host, guest)
        return settled.decided


class Matched(Sharing):
    """The guest with whom both do most together, if that is worth it: greedy by what is known, or
    predicted, of pairs."""

    WORTH = 1.2
    """Speeds of both together, 1 each alone."""

    def __init__(self, name: str, slowdowns: Slowdowns | None = None) -> None:
        super().__init__(name)
        self._slowdowns = slowdowns

    def choose(self, settled: Settled, host: JobState, guests: list[JobState]) -> JobState | None:
        """The best by the sum of speeds."""
        best, most = None, self.WORTH
        for guest in guests:
            if self._slowdowns is None:
                both = settled.pairs.slowdowns(host.job.model, guest.job.model)
                assert both is not None
            else:
                both = self._slowdowns(host, guest)
            together = 1 / both[0] + 1 / both[1]
            if together > most:
                best, most = guest, together
        return best
