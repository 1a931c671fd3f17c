# SPDX-License-Identifier: BSD-2-Clause
"""Sums of tensors at an aggregator: all of them, or without what is zero."""

from __future__ import annotations

import torch

from mltcp_tools.collectives.collective import Sum
from mltcp_tools.collectives.library import Chunks, How, Kind
from mltcp_tools.collectives.session import Session

SPARSE_BELOW = 0.9
"""Share of chunks with anything in them below which the others are left out."""

_SLOTS = (37, 61, 97, 151, 251)
"""Slots to choose from where zeros are left out: each costs a packet to agree. The fewest keep a
path of 50 kB full, and all are prime, so that no pattern of a tensor puts all it has in one slot.
"""

_ROUNDS = 24
"""Of a slot, about, where zeros are left out: with fewer, agreeing takes a time that shows."""


class Sums:
    """The sums of a session, and the knowledge of them.

    sparse: leave zeros out where their share was large the last time, in a tensor of that type and
    size. mltcp: grow the window by MLTCP's F.
    """

    def __init__(self, session: Session, timeout_s: float, sparse: bool, mltcp: bool) -> None:
        self._session, self._timeout_s, self._sparse, self._mltcp = (
            session,
            timeout_s,
            sparse,
            mltcp,
        )
        self._handed_over = self._iteration_bytes = 0  # of this iteration, of the one before
        self._densities: dict[tuple[str, int], float] = {}  # of chunks, by type and size

    def begin_iteration(self) -> None:
        """Begin an iteration, which is taken to be as large as the last one."""
        self._iteration_bytes, self._handed_over = self._handed_over, 0

    def reduce(
        self, tensor: torch.Tensor, result: torch.Tensor, kind: Kind, how: How
    ) -> tuple[bool, Sum]:
        """Reduce a tensor in place, by way of `result`; False where it isn't finite somewhere.

        The tensor is as it was then, and where SessionError is raised.
        """
        if self._mltcp:
            self._session.expect(self._handed_over, self._iteration_bytes)
            self._handed_over += tensor.nbytes
        count = tensor.numel()
        if not self._sparse or how is How.LARGEST or not count:
            return self._whole(tensor, result, kind, how)
        # What is known is of sums, which are the same everywhere: ranks must decide alike.
        density = self._densities.get((str(tensor.dtype), count), 1.0)
        if density < SPARSE_BELOW:
            return self._without_zeros(tensor, result, kind, how, density)
        finite, done = self._whole(tensor, result, kind, how)
        if finite:
            self._note(tensor, kind)
        return finite, done

    def _note(self, tensor: torch.Tensor, kind: Kind, chunks: Chunks | None = None) -> None:
        """Keep how much of a sum isn't zero. chunks: where there is something."""
        worker, count = self._session.worker, tensor.numel()
        found = worker.count_present(tensor.data_ptr(), count, kind, chunks)
        self._densities[str(tensor.dtype), count] = found / -(-count // worker.chunk(kind))

    def _whole(
        self, tensor: torch.Tensor, result: torch.Tensor, kind: Kind, how: How
    ) -> tuple[bool, Sum]:
        finite = self._session.reduce(
            tensor.data_ptr(), result.data_ptr(), tensor.numel(), kind, how, self._timeout_s
        )
        if finite:
            tensor.copy_(result.view_as(tensor))
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
