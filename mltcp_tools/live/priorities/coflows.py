# SPDX-License-Identifier: BSD-2-Clause
"""The order in which coflows should be served: Sincronia's, and what it is compared with.

A coflow is a set of flows that matter together: a job's burst is done when its last flow is.
Agarwal et al., "Sincronia: Near-Optimal Network Design for Coflows" (SIGCOMM 2018), show that a
good order suffices: any rates that respect the order of BSSI and leave no port idle needlessly
are within four times of the least possible weighted mean completion time.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from mltcp_tools.base.errors import UsageError

Each = TypeVar("Each", bound=Hashable)

WEIGHTS = ("none", "remaining-more", "remaining-less", "layer", "idle")
"""Coflows may be weighted by these, in the order of the simulator's enum sim_weight."""

LEVELS = 8
"""MLTCP_PRIORITY_LEVELS: levels of priority that the programs know; HTB's classes have as many."""

# A coflow whose weight were zero would go last whatever it asks for.
_LEAST_WEIGHT = 1e-6


@dataclass(frozen=True)
class CoflowProgress:
    """The inputs of CoInNetFlow's weights.

    remaining: share of the coflow's bytes that is still to be sent, 0 to 1.
    layer, layers: the tensor's layer, from 0 in front, and how many the model has.
    idle_s: seconds for which the workers that wait for the coflow have been idle, summed.
    """

    remaining: float = 1.0
    layer: int = 0
    layers: int = 1
    idle_s: float = 0.0


def weight(weighting: str, progress: CoflowProgress) -> float:
    """A coflow's weight, above 0; the larger, the earlier (Ho's simulator of CoInNetFlow, 2023).

    weighting: one of WEIGHTS; 1 for `none`.

    `remaining-more` favours coflows that have much left, `remaining-less` those that are nearly
    done, `layer` tensors of the front layers, which the next forward pass needs first, and `idle`
    coflows that many have long waited for.
    """
    match weighting:
        case "remaining-more":
            value = progress.remaining
        case "remaining-less":
            value = 1.0 - progress.remaining
        case "layer":
            value = 1.0 - progress.layer / progress.layers
        case "idle":
            value = progress.idle_s
        case _:
            value = 1.0
    return max(_LEAST_WEIGHT, value)


def bssi(
    demands: Sequence[Mapping[Any, float]], weights: Sequence[float] | None = None
) -> list[int]:
    """The order of coflows that Sincronia serves them in, first to last, as indices of `demands`.

    demands: per coflow, what it asks of each port (a link and its direction): bytes, or seconds
    where ports have different rates. Flows between the same ports are added up by the caller.
    weights: above 0, larger is earlier; 1 each where left out.

    Bottleneck, select, scale, iterate (Sincronia, algorithm 1), from the last place to the first:
    of the most loaded port, the coflow with the least weight per demand goes last, and the
    others that use the port pay for it with weight. Ties go to the greatest port (as the ports
    compare) and to the coflow that stands last. Coflows without demand go first.
    """
    worth = [1.0] * len(demands) if weights is None else list(weights)
    _require(demands, worth)
    users: dict[Any, dict[int, float]] = {}
    for index, demand in enumerate(demands):
        for port, amount in demand.items():
            if amount > 0:
                users.setdefault(port, {})[index] = amount
    load = {port: sum(asked.values()) for port, asked in users.items()}
    left = dict.fromkeys(range(len(demands)))
    order: list[int] = []
    while load:
        bottleneck = max(load, key=lambda port: (load[port], port))
        asked = users[bottleneck]
        last = min(asked, key=lambda index: (worth[index] / asked[index], -index))
        ratio = worth[last] / asked[last]
        for index, amount in asked.items():
            # The chosen one's own weight becomes 0; rounding must not make others' negative.
            worth[index] = max(0.0, worth[index] - ratio * amount)
        order.append(last)
        del left[last]
        for port, amount in demands[last].items():
            if amount > 0:
                del users[port][last]
                load[port] = sum(users[port].values())
                if not users[port]:
                    del load[port]
    return list(left) + order[::-1]


def levels(
    order: Sequence[Each], count: int, present: Mapping[Each, int] | None = None
) -> dict[Each, int]:
    """Priority of each in the order, 0 the best; the last of `count` levels may be shared.

    present: levels of those that send already. They are kept where the order allows it and become
    worse ones else: packets that go to a better level overtake those that wait. Where that takes
    more levels than there are, all get their place in the order, as Sincronia maps an order of any
    length to the few priorities of a switch.
    """
    if count < 1:
        raise UsageError(f"{count} is not a number of priority levels; there is at least one.")
    found: dict[Each, int] = {}
    following = 0
    for each in order:
        found[each] = max(following, (present or {}).get(each, 0))
        following = found[each] + 1
    if following <= count:
        return found
    return {each: min(place, count - 1) for place, each in enumerate(order)}


def _require(demands: Sequence[Mapping[Any, float]], weights: Sequence[float]) -> None:
    if len(weights) != len(demands):
        raise UsageError(
            f"{len(weights)} weights are given for {len(demands)} coflows; give one each."
        )
    if not all(math.isfinite(each) and each > 0 for each in weights):
        raise UsageError("a coflow's weight must be a number above 0.")
    asked = (amount for demand in demands for amount in demand.values())
    if not all(math.isfinite(each) and each >= 0 for each in asked):
        raise UsageError("a coflow's demand must be a number that is not negative.")
