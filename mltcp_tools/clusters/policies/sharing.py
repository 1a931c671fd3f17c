# SPDX-License-Identifier: BSD-2-Clause
"""Two jobs may share the same GPUs where `pairs` says how that slows them down.

The plan (plan.py) says who has GPUs, those with the least work first; then each of those inside one
server may have a guest of those that wait. Who shares stays together until one of both ends or
goes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from mltcp_tools.base.errors import UsageError
from mltcp_tools.clusters.interference import PairModel, fit_pairs
from mltcp_tools.clusters.models import Allocation
from mltcp_tools.clusters.pairs import Pairs
from mltcp_tools.clusters.policies.plan import ROUND_S, SPREAD, decide
from mltcp_tools.clusters.view import Decision, JobState, Shared, View

LOOK = 16
"""A host chooses among the first so many of those that wait and fit."""
WORTH = 1.2
"""Two share if their speeds, 1 each alone, together are predicted to be more."""


@dataclass
class Settled:
    """The decisions before anybody new is paired. open: hosts without a guest. queue: who waits;
    both with the fewest GPU seconds to do first. left_s: what each has to do, alone."""

    decided: dict[int, Allocation]
    open: list[JobState]
    queue: list[JobState]
    left_s: dict[int, float]
    pairs: Pairs

    def guests(self, host: JobState) -> list[JobState]:
        """The first LOOK jobs that the host could share its GPUs with."""
        gpus = sum(self.decided[host.number].values())
        found: list[JobState] = []
        for state in self.queue:
            fits = gpus <= SPREAD * state.job.gpus
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


def settle(view: View) -> Settled:
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
    decided: dict[int, Allocation] = dict(decide(replace(view, running=owners)))
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
    )


class Predicted:
    """Each host, the one with the least to do first, takes the guest with whom both do most
    together, by a model that saw half of the measured pairs."""

    name = "predicted"
    round_s: float | None = ROUND_S

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._fitted: tuple[Pairs, PairModel] | None = None

    def decide(self, view: View) -> Decision:
        """Return the jobs that have GPUs, and those that share them."""
        settled = settle(view)
        if self._fitted is None or self._fitted[0] is not settled.pairs:
            self._fitted = settled.pairs, fit_pairs(settled.pairs, self._seed)
        for host in list(settled.open):
            best, most = None, WORTH
            for guest in settled.guests(host):
                together = sum(1 / slow for slow in self._fitted[1].slowdowns(host, guest))
                if together > most:
                    best, most = guest, together
            if best is not None:
                settled.pair(host, best)
        return settled.decided
