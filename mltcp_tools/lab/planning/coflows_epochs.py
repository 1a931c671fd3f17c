# SPDX-License-Identifier: BSD-2-Clause
"""Sincronia's epochs: which of many coflows to order now, by a linear program.

With thousands of arrivals a second an order can't be made anew at each. Time is cut into epochs,
each twice as long as the last; at the start of one, the heaviest set of coflows that the ports can
carry within the epoch is chosen, and only these get an order (Sincronia, section 3.3). With tens of
jobs the order is cheap enough to be made anew at every arrival and end, which is better.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import highspy
import numpy as np

from mltcp_tools.base.errors import MltcpError

FIRST_EPOCH_S = 0.1
"""Length of the first epoch, s."""
EPOCHS = 8
"""Epochs until the length starts again at the first one's."""

_CHOSEN = 0.5


def epoch_s(number: int) -> float:
    """Length of an epoch, counted from 0, in seconds."""
    return FIRST_EPOCH_S * 2.0 ** (number % EPOCHS)


def choose(
    demands: Sequence[Mapping[Any, float]], weights: Sequence[float], length_s: float
) -> list[int]:
    """Indices of the coflows that get an order in an epoch of this length.

    demands: seconds that a coflow needs of each port. The program: x between 0 and 1 for each,
    the weight of all x as large as possible, the load of no port longer than the epoch. Chosen is
    what has x of a half at least, which loads a port for two epochs at most.
    """
    if not demands:
        return []
    ports = sorted({port for demand in demands for port in demand})
    row = {port: number for number, port in enumerate(ports)}
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(demands), len(ports)
    model.sense_ = highspy.ObjSense.kMaximize
    model.col_cost_ = np.array(weights, dtype=np.float64)
    model.col_lower_, model.col_upper_ = np.zeros(len(demands)), np.ones(len(demands))
    model.row_lower_ = np.full(len(ports), -highspy.kHighsInf)
    model.row_upper_ = np.full(len(ports), length_s)
    model.a_matrix_.start_ = np.r_[0, np.cumsum([len(demand) for demand in demands])]
    model.a_matrix_.index_ = np.array([row[port] for demand in demands for port in demand])
    model.a_matrix_.value_ = np.array(
        [asked for demand in demands for asked in demand.values()], dtype=np.float64
    )
    highs = highspy.Highs()  # type: ignore[no-untyped-call]
    highs.silent()
    highs.passModel(model)
    highs.run()
    if highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        raise MltcpError(
            f"HiGHS could not choose among {len(demands)} coflows"
            f" ({highs.modelStatusToString(highs.getModelStatus())}); leave out the policy epochs."
        )
    shares = np.asarray(highs.getSolution().col_value)
    # The solver's tolerance: a half must not be missed by a rounding error.
    return np.flatnonzero(shares >= _CHOSEN - 1e-6).tolist()
