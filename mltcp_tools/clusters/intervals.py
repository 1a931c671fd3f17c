# SPDX-License-Identifier: BSD-2-Clause
"""Confidence intervals of means."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The mean, and half of its 95 % interval by Student's t; NaN with fewer than two values."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return mean, float("nan")
    # scipy takes a while to import, and most commands need none of it.
    from scipy.stats import t

    spread = float(np.std(values, ddof=1)) / len(values) ** 0.5
    return mean, float(t.ppf(0.975, len(values) - 1)) * spread
