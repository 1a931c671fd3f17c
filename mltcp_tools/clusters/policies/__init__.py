"""Scheduling policies by name.

NAME-estimated is the policy NAME that knows how long jobs last by estimates only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mltcp_tools.clusters.policies.cassini import Cassini
from mltcp_tools.clusters.policies.estimated import SUFFIX, Estimated
from mltcp_tools.clusters.policies.gavel import Gavel
from mltcp_tools.clusters.policies.marginal import Marginal
from mltcp_tools.clusters.policies.orders import Fair, Fifo, LeastAttained, ShortestRemaining
from mltcp_tools.clusters.policies.placing import near, pack, scatter
from mltcp_tools.clusters.policies.plan import Elastic
from mltcp_tools.clusters.policies.predicted import Predicted
from mltcp_tools.clusters.policies.replay import Replay
from mltcp_tools.clusters.policies.sharing import Matched, Sharing
from mltcp_tools.clusters.policies.sia import Sia
from mltcp_tools.clusters.view import Policy
from mltcp_tools.errors import UsageError


@dataclass(frozen=True)
class Known:
    """A policy. make: from a seed. resizes: jobs have other numbers of GPUs than they ask for.
    shares: it needs measured pairs. lengths: it goes by how long jobs last."""

    make: Callable[[int], Policy]
    resizes: bool = False
    shares: bool = False
    lengths: bool = False


POLICIES = {
    "fifo": Known(lambda seed: Fifo("fifo", pack)),
    "srtf": Known(lambda seed: ShortestRemaining("srtf", pack), lengths=True),
    "las": Known(lambda seed: LeastAttained("las", pack)),
    "themis": Known(lambda seed: Fair("themis", pack), lengths=True),
    "random": Known(lambda seed: Fifo("random", scatter(seed))),
    "packed": Known(lambda seed: Fifo("packed", pack, backfill=True)),
    "network": Known(lambda seed: Fifo("network", near, backfill=True)),
    "cassini": Known(lambda seed: Cassini(seed)),
    "replay": Known(lambda seed: Replay()),
    "gavel": Known(lambda seed: Gavel()),
    "marginal": Known(lambda seed: Marginal(), resizes=True),
    "sia": Known(lambda seed: Sia(), resizes=True),
    "elastic": Known(lambda seed: Elastic(), resizes=True, lengths=True),
    "shared": Known(lambda seed: Sharing("shared"), resizes=True, shares=True, lengths=True),
    "matched": Known(lambda seed: Matched("matched"), resizes=True, shares=True, lengths=True),
    "predicted": Known(lambda seed: Predicted(seed), resizes=True, shares=True, lengths=True),
}


def known(name: str) -> Known:
    """The entry of the policy that `name` names, estimated or not; a UsageError lists them."""
    found = POLICIES.get(name.removesuffix(SUFFIX))
    if found is None:
        raise UsageError(
            f"there is no policy {name!r}; there are {', '.join(POLICIES)}; some also as"
            f" NAME{SUFFIX}."
        )
    if name.endswith(SUFFIX) and not found.lengths:
        raise UsageError(f"{name.removesuffix(SUFFIX)} doesn't go by how long jobs last.")
    return found


def policy(name: str, seed: int = 1, pace: float = 1.0) -> Policy:
    """A fresh policy of that name.

    pace: by how much a trace is shorter than it was, so that rounds and queues are, too.
    """
    found = known(name).make(seed)
    if found.round_s is not None:
        found.round_s /= pace
    if isinstance(found, LeastAttained):
        found.queues_s = found.queues_s[0] / pace, found.queues_s[1] / pace
    return Estimated(found) if name.endswith(SUFFIX) else found
