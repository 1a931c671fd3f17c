# SPDX-License-Identifier: BSD-2-Clause
"""Scheduling policies by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mltcp_tools.base.errors import UsageError
from mltcp_tools.clusters.policies.cassini import Cassini
from mltcp_tools.clusters.policies.orders import Fifo, Replay, ShortestRemaining
from mltcp_tools.clusters.policies.placing import shuffled
from mltcp_tools.clusters.policies.plan import Elastic
from mltcp_tools.clusters.policies.sharing import Predicted
from mltcp_tools.clusters.view import Policy


@dataclass(frozen=True)
class Known:
    """A policy. make: from a seed. shares: it needs measured pairs."""

    make: Callable[[int], Policy]
    shares: bool = False


POLICIES = {
    "fifo": Known(lambda seed: Fifo("fifo")),
    "srtf": Known(lambda seed: ShortestRemaining()),
    "random": Known(lambda seed: Fifo("random", shuffled(seed))),
    "cassini": Known(lambda seed: Cassini(seed)),
    "replay": Known(lambda seed: Replay()),
    "elastic": Known(lambda seed: Elastic()),
    "predicted": Known(lambda seed: Predicted(seed), shares=True),
}


def known(name: str) -> Known:
    """The entry of the policy of that name; a UsageError lists them."""
    if name not in POLICIES:
        raise UsageError(f"there is no policy {name!r}; there are {', '.join(POLICIES)}.")
    return POLICIES[name]


def policy(name: str, seed: int = 1, pace: float = 1.0) -> Policy:
    """A fresh policy of that name.

    pace: by how much a trace is shorter than it was, so that rounds are, too.
    """
    found = known(name).make(seed)
    if found.round_s is not None:
        found.round_s /= pace
    return found
