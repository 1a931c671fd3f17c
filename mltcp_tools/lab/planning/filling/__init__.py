# SPDX-License-Identifier: BSD-2-Clause
"""Max-min shares of links, in C, for whatever simulates flows."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mltcp_tools.kernel.native.extension import declarations, extension

FOLDER = Path(__file__).resolve().parent
"""The folder of filling.h and filling.c, for `native.extension`."""


@functools.cache
def _library() -> tuple[Any, Any]:
    return extension(
        "filling", declarations(FOLDER / "filling.h"), '#include "filling.h"\n', FOLDER
    )


class Filling:
    """Users that cross links, each with what it sends once over each, all of one weight.

    paths: of each user, the numbers of its links. capacity: of each link, in any unit.
    """

    def __init__(self, paths: Sequence[Sequence[int]], capacity: npt.NDArray[np.float64]) -> None:
        lib, ffi = _library()
        self._fill, self._capacity = lib.fill, capacity
        ends = np.cumsum([0, *(len(path) for path in paths)])
        links, users, crossings = len(capacity), len(paths), int(ends[-1])
        self._links = ffi.new("struct filling_link[]", links)
        # What the structure points to lives as long as this does.
        self._open = ffi.new("uint32_t[]", users)
        self._share = ffi.new("double[]", users)
        self._kept = (
            ffi.new("uint32_t[]", ends.tolist()),
            ffi.new("struct filling_crossing[]", [(1.0, link) for path in paths for link in path]),
            ffi.new("double[]", [1.0] * users),
            ffi.new("uint32_t[]", links),
            ffi.new("uint32_t[]", crossings),
        )
        first, crossed, weight, asked, on = self._kept
        self._filling = ffi.new(
            "struct filling *",
            {
                "first": first,
                "crossings": crossed,
                "weight": weight,
                "share": self._share,
                "links": self._links,
                "link_count": links,
                "asked": asked,
                "on": on,
                "open": self._open,
            },
        )

    def shares(self, classes: Sequence[npt.NDArray[np.intp]]) -> npt.NDArray[np.float64]:
        """Max-min fair shares of the users in the first class, then in the next one with what is
        left, and so on; 0 for those in none."""
        shares = np.zeros(len(self._share))
        for number, left in enumerate(self._capacity):
            self._links[number].left = left
        for members in classes:
            self._filling.open_count = len(members)
            self._open[0 : len(members)] = members.tolist()
            self._fill(self._filling)
            shares[members] = [self._share[user] for user in members]
        return shares
