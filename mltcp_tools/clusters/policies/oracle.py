"""An oracle of who shares GPUs and how far jobs may grow: matchings with all pairs and lengths
known, and the best of several ways to weigh them and to size jobs, chosen in hindsight.

It says what can be won for sure; `clusters/bound.py` says what nobody can win.
"""

from __future__ import annotations

import numpy as np

from mltcp_tools.clusters.policies.plan import ROUND_S, SPREAD
from mltcp_tools.clusters.policies.sharing import settle
from mltcp_tools.clusters.view import Decision, View

WAYS = tuple(
    (worth, short, spread)
    for worth in (1.1, 1.2, 1.3, 1.45)
    for short in (0.25, 0.5, 0.75)
    for spread in (2, 4)
)
"""From which sum of speeds on sharing is worth it, how much more a short job's speed counts, and
how many times the GPUs that it asked for a job gets at most."""


class Oracle:
    """Hosts and those that wait are matched so that the weighted sum of speeds is largest (Kuhn
    1955); a job's weight is its remaining time to the power of -`short`."""

    round_s: float | None = ROUND_S

    def __init__(self, worth: float, short: float, spread: int = SPREAD) -> None:
        self.name = f"oracle-{worth:g}-{short:g}-{spread}"
        self._worth, self._short, self._spread = worth, short, spread

    def decide(self, view: View) -> Decision:
        """The plan, with the best matching of guests to hosts."""
        from scipy.optimize import linear_sum_assignment

        settled = settle(view, self._spread)
        hosts = list(settled.open)
        waiting = {state.number: place for place, state in enumerate(settled.queue)}
        gain = np.zeros((len(hosts), len(waiting)))
        guests = list(settled.queue)
        for row, host in enumerate(hosts):
            for guest in settled.guests(host):
                both = settled.pairs.slowdowns(host.job.model, guest.job.model)
                assert both is not None
                if 1 / both[0] + 1 / both[1] > self._worth:
                    mine, its = (
                        max(1.0, settled.left_s[each.number]) ** -self._short
                        for each in (host, guest)
                    )
                    lost = (1 - 1 / both[0]) * mine
                    gain[row, waiting[guest.number]] = max(0.0, its / both[1] - lost)
        if gain.size:
            for row, column in zip(*linear_sum_assignment(-gain), strict=True):
                if gain[row, column] > 0:
                    settled.pair(hosts[row], guests[column])
        return settled.decided
