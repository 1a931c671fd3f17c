# SPDX-License-Identifier: BSD-2-Clause
"""Scheduling policies by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mltcp_tools.base.errors import UsageError
from mltcp_tools.clusters.policies.cassini import Cassini
from mltcp_tools.clusters.policies.orders import Fifo, Replay
from mltcp_tools.clusters.policies.plan import Elastic
from mltcp_tools.clusters.view import Policy

POLICIES: Mapping[str, Callable[[int], Policy]] = {
    "fifo": lambda seed: Fifo(),
    "cassini": Cassini,
    "replay": lambda seed: Replay(),
    "elastic": lambda seed: Elastic(),
}
"""Name -> a fresh policy, by the seed of what it draws."""


def policy(name: str, seed: int = 1) -> Policy:
    """A fresh policy of that name; a UsageError lists them."""
    if name not in POLICIES:
        raise UsageError(f"there is no policy {name!r}; there are {', '.join(POLICIES)}.")
    return POLICIES[name](seed)
