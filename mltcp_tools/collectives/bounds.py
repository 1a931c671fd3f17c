# SPDX-License-Identifier: BSD-2-Clause
"""The least time of an all-reduce on links around a switch, headers left out."""

from __future__ import annotations

from collections.abc import Sequence

Rates = Sequence[float]
"""Of each rank's link in bit/s, both ways."""


def ring_bound_s(rates: Rates, size: float) -> float:
    """Seconds of a ring: each link carries 2(n-1)/n of the tensor, the slowest one too."""
    return 2 * (len(rates) - 1) / len(rates) * size * 8 / min(rates)


def aggregated_bound_s(rates: Rates, size: float) -> float:
    """Seconds where the switch sums up: each link carries the tensor once each way."""
    return size * 8 / min(rates)


def hosts_bound_s(rates: Rates, size: float) -> float:
    """Seconds that no all-reduce among hosts beats: links.bound_s in closed form, for a star.

    The smallest cut is the slowest link. All hosts together send 2(n-1) tensors, each at most what
    the others can take from it at once.
    """
    if len(rates) < 2:
        return 0.0
    together = sum(
        min(rate, sum(min(rate, other) for j, other in enumerate(rates) if j != i))
        for i, rate in enumerate(rates)
    )
    return max(size * 8 / min(rates), 2 * (len(rates) - 1) * size * 8 / together)
