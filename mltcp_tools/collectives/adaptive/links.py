# SPDX-License-Identifier: BSD-2-Clause
"""The network between the ranks, and the time of a ring over it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

PROBE_ERROR = 0.15
"""By which two probes of equal links may differ."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Links:
    """n hosts. rates: bit/s from i to j when nothing else is sent, n x n, its diagonal ignored.

    up, down: of each host's own link in bit/s. latencies: seconds from i to j, n x n.
    """

    rates: Floats
    up: Floats
    down: Floats
    latencies: Floats

    @property
    def hosts(self) -> int:
        """The number of hosts."""
        return int(self.rates.shape[0])

    @classmethod
    def measured(cls, rates: Floats, latencies: Floats) -> Links:
        """From probes between pairs: a host's own link is as fast as its fastest pair.

        Rates that differ by less than a probe's error count as equal, or the plan would follow the
        noise with many trees where one does.
        """
        pairs = np.where(np.eye(len(rates), dtype=bool), 0.0, _levelled(rates))
        return cls(pairs, pairs.max(axis=1), pairs.max(axis=0), latencies)

    def at_best(self, other: Links) -> Links:
        """Of two measurements of the same links, the faster one of each pair."""
        latencies = np.minimum(self.latencies, other.latencies)
        return Links.measured(np.maximum(self.rates, other.rates), latencies)

    @classmethod
    def star(cls, rates: Floats, latency: float = 1e-4) -> Links:
        """Hosts around a switch, each behind a link of its rate, both ways."""
        pairs = np.minimum.outer(rates, rates)
        return cls(pairs, rates.copy(), rates.copy(), np.full(pairs.shape, latency))


def _levelled(rates: Floats) -> Floats:
    """Each rate replaced by the mean of those at most PROBE_ERROR above the lowest of its group."""
    levelled = rates.copy()
    left = np.unique(rates[rates > 0])
    while left.size:
        group = left[left <= left[0] * (1 + PROBE_ERROR)]
        levelled[(rates >= group[0]) & (rates <= group[-1])] = group.mean()
        left = left[group.size :]
    return levelled


def ring_s(links: Links, size: float) -> float:
    """Seconds of a ring in the ranks' order: 2(n-1) steps, each of size/n over its slowest link."""
    count = links.hosts
    if count < 2:
        return 0.0
    slowest = min(links.rates[i, (i + 1) % count] for i in range(count))
    return float(2 * (count - 1) / count * size * 8 / slowest)
