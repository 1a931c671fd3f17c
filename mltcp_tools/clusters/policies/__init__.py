"""Scheduling policies by name."""

from __future__ import annotations

from collections.abc import Callable

from mltcp_tools.clusters.policies.cassini import Cassini
from mltcp_tools.clusters.policies.estimated import Estimated
from mltcp_tools.clusters.policies.marginal import Marginal
from mltcp_tools.clusters.policies.orders import Fair, Fifo, LeastAttained, ShortestRemaining
from mltcp_tools.clusters.policies.placing import near, pack, scatter
from mltcp_tools.clusters.policies.plan import Elastic
from mltcp_tools.clusters.policies.predicted import Predicted
from mltcp_tools.clusters.policies.replay import Replay
from mltcp_tools.clusters.policies.sharing import Matched, Sharing
from mltcp_tools.clusters.view import Policy
from mltcp_tools.errors import UsageError

POLICIES: dict[str, Callable[[int], Policy]] = {
    "fifo": lambda seed: Fifo("fifo", pack),
    "srtf": lambda seed: ShortestRemaining("srtf", pack),
    "srtf-estimated": lambda seed: Estimated(ShortestRemaining("srtf", pack)),
    "las": lambda seed: LeastAttained("las", pack),
    "themis": lambda seed: Fair("themis", pack),
    "random": lambda seed: Fifo("random", scatter(seed)),
    "packed": lambda seed: Fifo("packed", pack, backfill=True),
    "network": lambda seed: Fifo("network", near, backfill=True),
    "cassini": lambda seed: Cassini(seed),
    "replay": lambda seed: Replay(),
    "marginal": lambda seed: Marginal(),
    "elastic": lambda seed: Elastic(),
    "elastic-estimated": lambda seed: Estimated(Elastic()),
    "shared": lambda seed: Sharing("shared"),
    "matched": lambda seed: Matched("matched"),
    "predicted": lambda seed: Predicted(seed),
}


def policy(name: str, seed: int = 1, pace: float = 1.0) -> Policy:
    """A fresh policy of that name, or a UsageError that lists them.

    pace: by how much a trace is shorter than it was, so that rounds and queues are, too.
    """
    if name not in POLICIES:
        raise UsageError(f"there is no policy {name!r}; there are {', '.join(POLICIES)}.")
    found = POLICIES[name](seed)
    if found.round_s is not None:
        found.round_s /= pace
    if isinstance(found, LeastAttained):
        found.queues_s = found.queues_s[0] / pace, found.queues_s[1] / pace
    return found
