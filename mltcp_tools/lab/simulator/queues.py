# SPDX-License-Identifier: BSD-2-Clause
"""The lengths of queues: mean and percentiles over the time for which their links were busy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_PART = 0.01
"""Of the most that a link keeps: the length that a bin of struct sim_queue stands for."""


@dataclass(frozen=True)
class WatchedQueue:
    """The queue of one link in one run. most: bytes that the link keeps. watched: struct sim_queue
    as numbers, see `library.Result`."""

    most: int
    watched: npt.NDArray[np.float64]


def mean_bytes(queues: Sequence[WatchedQueue]) -> float:
    """Mean over the time for which the links were busy, bytes on the wire; 0 where they never
    were."""
    busy = sum(float(each.watched[0]) for each in queues)
    return sum(float(each.watched[1]) for each in queues) / busy if busy else 0.0


def percentile_bytes(queues: Sequence[WatchedQueue], share: float) -> float:
    """The length that the queues don't exceed for that share of the time for which their links were
    busy, bytes on the wire, to 1 % of what a link keeps; 0 where they never were."""
    lengths = np.concatenate(
        [_PART * each.most * np.arange(1, len(each.watched) - 1) for each in queues]
    )
    times = np.concatenate([each.watched[2:] for each in queues])
    order = np.argsort(lengths, kind="stable")
    passed = np.cumsum(times[order])
    if not passed[-1]:
        return 0.0
    return float(lengths[order][np.searchsorted(passed, share * passed[-1])])
