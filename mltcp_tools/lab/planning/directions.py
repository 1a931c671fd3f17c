# SPDX-License-Identifier: BSD-2-Clause
"""A link as its two directions: each carries the link's rate and is shared apart from the other."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from mltcp_tools.lab.planning.circle import Circle
from mltcp_tools.lab.planning.rotations import SharedLink

THERE, BACK = "there", "back"


def directions(
    capacity_bps: float,
    circle: Circle,
    numbers: Mapping[str, int],
    crossings: Mapping[str, int],
    rings: Collection[str] = (),
) -> dict[str, SharedLink]:
    """The directions of a link that its jobs use, by name: THERE, BACK or both.

    numbers: job -> its number in the problem. crossings: job on the link -> how often its path
    crosses the link. rings: jobs whose hops cross it as often one way as the other, so that both
    directions carry what goes there and what comes back. A direction's weight is its share of the
    bytes, so that hardly used ones decide on hardly anything.
    """
    jobs = tuple(numbers[job] for job in crossings)
    ahead = tuple(crossings.values())
    around = tuple(times if job in rings else 0 for job, times in crossings.items())
    ways = {
        THERE: SharedLink(capacity_bps, jobs, ahead, around),
        BACK: SharedLink(capacity_bps, jobs, around, ahead),
    }
    if ahead == around or not any(circle.back[job].any() for job in crossings):
        answers = any(circle.back[job].any() for job in crossings)
        return {THERE: SharedLink(capacity_bps, jobs, ahead, around if answers else ())}
    found = {}
    for name, link in ways.items():
        load = sum(
            t * float(np.mean(circle.demand[job])) + b * float(np.mean(circle.back[job]))
            for job, t, b in zip(crossings, link.times, link.back, strict=True)
        )
        if load > 0:
            found[name] = SharedLink(capacity_bps, jobs, link.times, link.back, load)
    return _weighted(found)


def _weighted(ways: Mapping[str, SharedLink]) -> dict[str, SharedLink]:
    """The directions with weights that add up to those of one link."""
    total = sum(link.weight for link in ways.values())
    return {
        name: SharedLink(link.capacity, link.jobs, link.times, link.back, link.weight / total)
        for name, link in ways.items()
    }
