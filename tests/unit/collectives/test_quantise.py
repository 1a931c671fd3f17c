# SPDX-License-Identifier: BSD-2-Clause
"""Short floats as the worker reads and writes them, compared with NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

from mltcp_tools.collectives.library import How, Kind, library


@pytest.mark.parametrize("power", [-40, -26, -24, -20, -14, 0, 3])
def test_sums_become_the_nearest_half(power: int) -> None:
    lib, ffi = library()
    draw = np.random.default_rng(1)
    sums = np.concatenate(
        [draw.integers(-(2**most), 2**most, 4000) for most in (1, 4, 8, 12, 16, 20, 24)]
    ).astype(np.int32)  # a float32 has them all, so rounding is done once
    back = np.zeros(sums.size, np.uint16)
    at = ffi.cast("int32_t *", sums.ctypes.data)
    to = ffi.cast("void *", back.ctypes.data)
    lib.restore(at, int(Kind.FLOAT16), int(How.SUM), sums.size, power, 1, to)
    with np.errstate(over="ignore"):
        nearest = (sums * 2.0**power).astype(np.float16)
    # The sign of a zero that was rounded to is the value's in both.
    assert (back == nearest.view(np.uint16)).all()
