# SPDX-License-Identifier: BSD-2-Clause
"""Tensors that aren't first are sent smaller, as CoInNetFlow has it (Ho, KAUST 2023).

A burst that is ready while another job's is under way is compressed: that takes a while, and then
only a share of it has to be sent. Whether another one is under way is what the job's level of
priority says, in the maps of bpf/priority.bpf.c: a job that doesn't send has the level behind the
last of those that do.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from mltcp_tools.kernel.native.bpf_maps import BpfMap

BYTES_PER_S = 44.5e9
"""The speed at which the original's simulator compresses, bytes per second."""

LEAST_SHARE = 64
"""The least that a flow carries, bytes: the records that open and close a burst count, too."""

_U32, _U64 = struct.Struct("=I"), struct.Struct("=Q")


@dataclass(frozen=True)
class Compression:
    """The compression of a job. to: share of the bytes that is left. cost_s: seconds that
    compressing a burst takes; None: what BYTES_PER_S makes of it. maps: the folder where the maps
    of priorities are pinned; None: there are none, and nothing is compressed. number: the job's in
    the maps.
    """

    to: float = 0.25
    cost_s: float | None = None
    maps: str | None = None
    number: int = 0

    def sizes(self, shares: Sequence[int]) -> list[int]:
        """Return the remainder of each flow's share, bytes."""
        return [max(LEAST_SHARE, round(share * self.to)) for share in shares]

    def seconds(self, shares: Sequence[int]) -> float:
        """Return the time that compressing them takes."""
        return sum(shares) / BYTES_PER_S if self.cost_s is None else self.cost_s


class Compressor:
    """A running job's way to ask for its level, and to say what it will send. A context manager."""

    def __init__(self, compression: Compression | None) -> None:
        self._compression = compression
        self._stack = contextlib.ExitStack()
        self._levels: BpfMap | None = None

    def __enter__(self) -> Self:
        if self._compression is not None and self._compression.maps is not None:
            folder = Path(self._compression.maps)
            self._key = _U32.pack(self._compression.number)
            self._levels = self._stack.enter_context(BpfMap.pinned(folder / "priority_levels"))
            self._jobs = self._stack.enter_context(BpfMap.pinned(folder / "priority_jobs"))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def chosen(self, shares: list[int]) -> tuple[list[int], float]:
        """Return the bytes per flow that a burst is sent as, and the seconds until it can be
        sent.

        The controller is told: it goes by what a burst has left.
        """
        if self._compression is None or self._levels is None:
            return shares, 0.0
        level = self._levels.get(self._key)
        if level is None or _U32.unpack(level)[0] == 0:
            self._tell(sum(shares))
            return shares, 0.0
        smaller = self._compression.sizes(shares)
        self._tell(sum(smaller))
        return smaller, self._compression.seconds(shares)

    def _tell(self, size: int) -> None:
        """Write the burst's bytes, the first field of struct mltcp_priority_job."""
        known = self._jobs.get(self._key)
        if known is not None:
            self._jobs.set(self._key, _U64.pack(size) + known[_U64.size :])
