"""The least time of an all-reduce on links around a switch, and so the most that one can gain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mltcp_tools.collectives.replay import Replay

AT_AGGREGATOR = ("aggregated", "omnireduce")
WITHOUT_ZEROS = ("omnireduce", "sparse")

Rates = Sequence[float]
"""Of each rank's link in bit/s, both ways."""


def ring_bound_s(rates: Rates, size: float) -> float:
    """Seconds of a ring: each link carries 2(n-1)/n of the tensor, the slowest one too."""
    return 2 * (len(rates) - 1) / len(rates) * size * 8 / min(rates)


def aggregated_bound_s(rates: Rates, size: float) -> float:
    """Seconds where the switch sums up: each link carries the tensor once each way."""
    return size * 8 / min(rates)


def hosts_bound_s(rates: Rates, size: float) -> float:
    """Seconds that no all-reduce among hosts beats: links.bound_s in closed form, for a star.

    The smallest cut is the slowest link. All hosts together send 2(n-1) tensors, each at most what
    the others can take from it at once.
    """
    together = sum(
        min(rate, sum(min(rate, other) for j, other in enumerate(rates) if j != i))
        for i, rate in enumerate(rates)
    )
    return max(size * 8 / min(rates), 2 * (len(rates) - 1) * size * 8 / together)


def bound_s(algorithm: str, rates: Rates, size: float, density: float) -> float:
    """Seconds that an algorithm of the bench takes at least, headers left out."""
    sent = size * (density if algorithm in WITHOUT_ZEROS else 1.0)
    if algorithm in AT_AGGREGATOR:
        return aggregated_bound_s(rates, sent)
    return (hosts_bound_s if algorithm == "adaptive" else ring_bound_s)(rates, sent)


def least_s(
    begin: float, history: Sequence[tuple[float, Rates]], whole_s: Callable[[Rates], float]
) -> float:
    """Seconds from `begin` until something is done that takes whole_s(rates) at constant rates.

    history: the rates from a time on, sorted; the last ones stay.
    """
    done, now = 0.0, begin
    for place, (_, rates) in enumerate(history):
        end = history[place + 1][0] if place + 1 < len(history) else float("inf")
        if end <= now:
            continue
        takes = whole_s(rates)
        if now + (1 - done) * takes <= end:
            return now + (1 - done) * takes - begin
        done, now = done + (end - now) / takes, end
    raise ValueError("the history is empty")


@dataclass(frozen=True)
class Most:
    """How many times faster than a ring others are at most. aggregated: in the network; hosts: any
    all-reduce among the hosts. by_time: in the same time; else for as many reductions in each state
    of the links."""

    ranks: int
    aggregated: float
    hosts: float
    hosts_by_time: float


def most(ranks: int, shares_over_time: Sequence[Rates]) -> Most:
    """For links with these shares of a rate, each state as long as the others."""
    rings = [ring_bound_s(rates, 1.0) for rates in shares_over_time]
    switched = [aggregated_bound_s(rates, 1.0) for rates in shares_over_time]
    hosts = [hosts_bound_s(rates, 1.0) for rates in shares_over_time]
    return Most(
        ranks,
        sum(rings) / sum(switched),
        sum(rings) / sum(hosts),
        sum(1 / each for each in hosts) / sum(1 / each for each in rings),
    )


def shares_of(ranks: int, slow: float, replay: Replay | None) -> list[Rates]:
    """The states of the links, as shares of a rate. slow: the first one's where none changes."""
    if replay is None:
        return [[slow] + [1.0] * (ranks - 1)]
    links = ranks if replay.every_link else 1
    return [
        [replay.at(step * replay.step_s, link, links) for link in range(links)]
        + [1.0] * (ranks - links)
        for step in range(len(replay.shares))
    ]
