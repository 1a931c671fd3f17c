"""The order in which coflows should be served: Sincronia's, and what it is compared with.

A coflow is a set of flows that matter together: a job's burst is done when its last flow is.
Agarwal et al., "Sincronia: Near-Optimal Network Design for Coflows" (SIGCOMM 2018), show that a
good order suffices: any rates that respect the order of BSSI and leave no port idle needlessly
are within four times of the least possible weighted mean completion time.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from mltcp_tools.errors import UsageError

Each = TypeVar("Each", bound=Hashable)
Floats = npt.NDArray[np.float64]

# A coflow whose weight were zero would go last whatever it asks for.
_LEAST_WEIGHT = 1e-6


@dataclass(frozen=True)
class Progress:
    """What the weights of CoInNetFlow look at.

    remaining: share of the coflow's bytes that is still to be sent, 0 to 1.
    layer, layers: the tensor's layer, from 0 in front, and how many the model has.
    idle_s: seconds for which the workers that wait for the coflow have been idle, summed.
    """

    remaining: float = 1.0
    layer: int = 0
    layers: int = 1
    idle_s: float = 0.0


def weight(weighting: str, progress: Progress) -> float:
    """A coflow's weight, above 0; the larger, the earlier (Ho's simulator of CoInNetFlow, 2023).

    weighting: one of experiments.treatments.WEIGHTS; 1 for `none`.

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
    ports = sorted({port for demand in demands for port in demand})
    matrix = _matrix(demands, ports)
    worth = np.ones(len(demands)) if weights is None else np.array(weights, dtype=np.float64)
    _require(matrix, worth, len(demands))
    left = np.arange(len(demands))
    order: list[int] = []
    while left.size:
        load = matrix[left].sum(axis=0)
        # argmax and argmin find the first of equals; what is last decides here.
        bottleneck = load.size - 1 - int(load[::-1].argmax()) if load.size else -1
        if bottleneck < 0 or load[bottleneck] <= 0:
            order += left[::-1].tolist()
            break
        asked = matrix[left, bottleneck]
        ratio = np.divide(worth[left], asked, out=np.full(left.size, np.inf), where=asked > 0)
        last = left.size - 1 - int(ratio[::-1].argmin())
        # The chosen one's own weight becomes 0; rounding must not make others' negative.
        worth[left] = np.maximum(0.0, worth[left] - ratio[last] * asked)
        order.append(int(left[last]))
        left = np.delete(left, last)
    return order[::-1]


def sebf(demands: Sequence[Mapping[Any, float]]) -> list[int]:
    """Smallest effective bottleneck first (Varys, SIGCOMM 2014), as indices of `demands`."""
    longest = [max(demand.values(), default=0.0) for demand in demands]
    return sorted(range(len(demands)), key=longest.__getitem__)


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


def _matrix(demands: Sequence[Mapping[Any, float]], ports: Sequence[Any]) -> Floats:
    column = {port: number for number, port in enumerate(ports)}
    matrix = np.zeros((len(demands), len(ports)))
    for row, demand in enumerate(demands):
        for port, amount in demand.items():
            matrix[row, column[port]] = amount
    return matrix


def _require(matrix: Floats, weights: Floats, count: int) -> None:
    if weights.shape != (count,):
        raise UsageError(f"{weights.size} weights are given for {count} coflows; give one each.")
    if not (np.isfinite(weights).all() and (weights > 0).all()):
        raise UsageError("a coflow's weight must be a number above 0.")
    if not (np.isfinite(matrix).all() and (matrix >= 0).all()):
        raise UsageError("a coflow's demand must be a number that is not negative.")
