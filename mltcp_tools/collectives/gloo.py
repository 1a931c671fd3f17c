# SPDX-License-Identifier: BSD-2-Clause
"""Collectives that need nothing but the ranks' Gloo: its ring, and the same without zeros."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mltcp_tools.collectives.bounds import Rates, ring_bound_s
from mltcp_tools.collectives.collective import (
    Collective,
    CollectiveError,
    Setting,
    Sum,
    sentence_of,
)
from mltcp_tools.collectives.library import How

if TYPE_CHECKING:
    import torch

DENSE_FROM = 0.8
"""Share of blocks from which packing them costs more than it saves."""


class Gloo(Collective):
    """Everything by Gloo's ring."""

    name = "gloo"
    by_group = True

    @classmethod
    def bound_s(cls, rates: Rates, size: float, density: float) -> float:
        return ring_bound_s(rates, size)

    def reduce(self, tensor: torch.Tensor, result: torch.Tensor, how: How) -> Sum | None:
        try:
            if how is How.AVERAGE:
                tensor.div_(self.setting.group.world)
            self._sum(tensor)
        except RuntimeError as error:
            raise CollectiveError(
                f"A reduction by Gloo failed, so a rank is gone or silent: {sentence_of(error)}."
            ) from None
        return Sum(tensor.view(-1))

    def _sum(self, tensor: torch.Tensor) -> None:
        self.setting.group.all_reduce(tensor)


class Sparse(Gloo):
    """Blocks that aren't zero everywhere, by Gloo's ring."""

    name = "sparse"

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._densities: dict[tuple[str, int], float] = {}  # of blocks, by type and size

    @classmethod
    def bound_s(cls, rates: Rates, size: float, density: float) -> float:
        return ring_bound_s(rates, size * density)

    def _sum(self, tensor: torch.Tensor) -> None:
        from mltcp_tools.collectives.blocks import Blocks

        kind = str(tensor.dtype), tensor.numel()
        if self._densities.get(kind, 0.0) >= DENSE_FROM:
            super()._sum(tensor)
            self._densities[kind] = Blocks(tensor.view(-1)).density
            return
        blocks = Blocks(tensor.view(-1))
        self.setting.group.unite(blocks.present)
        self._densities[kind] = blocks.density
        packed = blocks.pack()
        super()._sum(packed)
        blocks.unpack(packed)
