# SPDX-License-Identifier: BSD-2-Clause
"""Small blocks that are zero at all ranks, which needn't be sent.

The ranks agree on the blocks by a byte each, and sum up what the others hold as one dense tensor.
This finds zeros that are too short to leave out whole packets (OmniReduce, SIGCOMM'21, fuses small
blocks into a packet for the same end).
"""

from __future__ import annotations

import torch

from mltcp_tools.collectives.collective import BLOCK


class Blocks:
    """The blocks of a flat tensor.

    present: a byte for each block, 1 where it isn't zero; padded to a multiple of four.
    """

    def __init__(self, flat: torch.Tensor) -> None:
        self._count: int = flat.numel() // BLOCK
        whole = self._count * BLOCK
        self._blocks, self._rest = flat[:whole].view(-1, BLOCK), flat[whole:]
        self.present = torch.zeros(-(-self._count // 4) * 4, dtype=torch.uint8)
        self.present[: self._count] = self._blocks.any(dim=1)

    @property
    def density(self) -> float:
        """Share of the blocks that are present."""
        return int(self.present.count_nonzero()) / max(1, self._count)

    def pack(self) -> torch.Tensor:
        """Return the present blocks, and the values behind the last block."""
        return torch.cat([self._blocks[self._chosen()].view(-1), self._rest])

    def unpack(self, packed: torch.Tensor) -> None:
        """Write what `pack` returned, summed up, into the tensor; other blocks become zero."""
        count = packed.numel() - self._rest.numel()
        self._blocks.zero_()
        self._blocks[self._chosen()] = packed[:count].view(-1, BLOCK)
        self._rest.copy_(packed[count:])

    def _chosen(self) -> torch.Tensor:
        return self.present[: self._count].nonzero().squeeze(1)
