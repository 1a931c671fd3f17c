"""The most that an all-reduce can gain over a ring, and the least time where links change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mltcp_tools.collectives.bounds import (
    Rates,
    aggregated_bound_s,
    hosts_bound_s,
    ring_bound_s,
)
from mltcp_tools.lab.collectives.replay import Replay


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
    """Upper bounds of the speed-up over a ring. aggregated: in the network; hosts: any
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
