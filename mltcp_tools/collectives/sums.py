# SPDX-License-Identifier: BSD-2-Clause
"""Sums of tensors at an aggregator: of all values, or without chunks or blocks that are zero.

A chunk fills a packet; chunks of zeros are left out as packets go. Smaller blocks of zeros are
agreed on beforehand (blocks.py).
"""

from __future__ import annotations

import torch

from mltcp_tools.collectives.blocks import Blocks
from mltcp_tools.collectives.collective import BLOCK, Sum
from mltcp_tools.collectives.library import Chunks, How, Kind
from mltcp_tools.collectives.session import Session

SPARSE_BELOW, PACKED_BELOW = 0.9, 0.8
"""Share of chunks that aren't zero below which the others are left out; bytes of packed blocks, and
of the agreement on them, by those of these chunks below which blocks are left out."""

_SLOTS = (37, 61, 97, 151, 251)
"""Slots to choose from where zeros are left out: each costs a packet to agree. The fewest keep a
path of 50 kB full, and all are prime, so that no pattern of a tensor puts all it has in one slot.
"""

_ROUNDS = 24
"""Of a slot, about, where zeros are left out: with fewer, agreeing takes a time that shows."""


class Sums:
    """The sums of a session, and the knowledge of them.

    Zeros are left out where their share was large the last time, in a tensor of that type and size.
    """

    def __init__(self, session: Session, timeout_s: float) -> None:
        self._session, self._timeout_s = session, timeout_s
        self._densities: dict[tuple[str, int], tuple[float, float]] = {}
        """Of chunks and of blocks in the last sum, by type and size."""

    def reduce(
        self, tensor: torch.Tensor, result: torch.Tensor, kind: Kind, how: How
    ) -> tuple[bool, Sum]:
        """Reduce a tensor in place, by way of `result`; False where it isn't finite somewhere.

        The tensor is as it was then, and where SessionError is raised.
        """
        count = tensor.numel()
        if not count:
            return self._whole(tensor, result, kind, how)
        # What is known is of sums, which are the same everywhere: ranks must decide alike.
        density, of_blocks = self._densities.get((str(tensor.dtype), count), (1.0, 1.0))
        if of_blocks + 1 / (BLOCK * kind.bytes) < PACKED_BELOW * density:
            return self._packed(tensor, result, kind, how)
        if density < SPARSE_BELOW:
            return self._without_zeros(tensor, result, kind, how, density)
        finite, done = self._whole(tensor, result, kind, how)
        if finite:
            self._note(tensor, kind)
        return finite, done

    def _note(self, tensor: torch.Tensor, kind: Kind, chunks: Chunks | None = None) -> None:
        """Keep how much of a sum isn't zero. chunks: where there is something."""
        worker, count = self._session.worker, tensor.numel()
        found, blocks = worker.count_present(tensor.data_ptr(), count, kind, BLOCK, chunks)
        self._densities[str(tensor.dtype), count] = (
            found / -(-count // worker.chunk(kind)),
            blocks * BLOCK / count,
        )

    def _whole(
        self, tensor: torch.Tensor, result: torch.Tensor, kind: Kind, how: How
    ) -> tuple[bool, Sum]:
        finite = self._session.reduce(
            tensor.data_ptr(), result.data_ptr(), tensor.numel(), kind, how, self._timeout_s
        )
        if finite:
            tensor.copy_(result.view_as(tensor))
        return finite, Sum(result)

    def _packed(
        self, tensor: torch.Tensor, result: torch.Tensor, kind: Kind, how: How
    ) -> tuple[bool, Sum]:
        result.copy_(tensor.view(-1))
        blocks = Blocks(result)
        # Four bytes to an integer: at most 64 workers add 1 to each, so none overflows.
        marks = blocks.present.view(torch.int32)
        self._whole(marks, torch.empty_like(marks), Kind.INT32, How.SUM)
        packed = blocks.pack()
        finite, _ = self._whole(packed, torch.empty_like(packed), kind, how)
        if finite:
            blocks.unpack(packed)
            tensor.copy_(result.view_as(tensor))
            self._note(tensor, kind)
        return finite, Sum(result)

    def _without_zeros(
        self, tensor: torch.Tensor, result: torch.Tensor, kind: Kind, how: How, density: float
    ) -> tuple[bool, Sum]:
        count, values = tensor.numel(), self._session.worker.chunk(kind)
        source, target = tensor.data_ptr(), result.data_ptr()
        wanted = density * -(-count // values) / _ROUNDS
        slots = next((slots for slots in _SLOTS if slots >= wanted), 0)
        chunks = Chunks.of(count, values, slots)
        finite = self._session.reduce(source, target, count, kind, how, self._timeout_s, chunks)
        if finite:
            self._session.worker.copy_summed(chunks, target, source, count, kind)
            self._note(tensor, kind, chunks)
        return finite, Sum(result, chunks)
