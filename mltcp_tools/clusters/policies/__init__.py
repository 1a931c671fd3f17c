"""Scheduling policies by name."""

from __future__ import annotations

from collections.abc import Callable

from mltcp_tools.clusters.policies.cassini import Cassini
from mltcp_tools.clusters.policies.goodput import Goodput
from mltcp_tools.clusters.policies.orders import Fair, Fifo, LeastAttained, ShortestRemaining
from mltcp_tools.clusters.policies.placing import near, pack, scatter
from mltcp_tools.clusters.policies.plan import Elastic
from mltcp_tools.clusters.policies.sharing import Matched, Sharing
from mltcp_tools.clusters.view import Policy
from mltcp_tools.errors import UsageError

POLICIES: dict[str, Callable[[int], Policy]] = {
    "fifo": lambda seed: Fifo("fifo", pack),
    "srtf": lambda seed: ShortestRemaining("srtf", pack),
    "las": lambda seed: LeastAttained("las", pack),
    "themis": lambda seed: Fair("themis", pack),
    "random": lambda seed: Fifo("random", scatter(seed)),
    "packed": lambda seed: Fifo("packed", pack, backfill=True),
    "network": lambda seed: Fifo("network", near, backfill=True),
    "cassini": lambda seed: Cassini(seed),
    "goodput": lambda seed: Goodput(),
    "elastic": lambda seed: Elastic(),
    "shared": lambda seed: Sharing("shared"),
    "matched": lambda seed: Matched("matched"),
}


def policy(name: str, seed: int = 1) -> Policy:
    """A fresh policy of that name, or a UsageError that lists them."""
    if name not in POLICIES:
        raise UsageError(f"there is no policy {name!r}; there are {', '.join(POLICIES)}.")
    return POLICIES[name](seed)
