"""Sending the largest part of a gradient, and the rest later."""

from __future__ import annotations

import torch

BLOCK = 256
"""Values of a block; whole blocks are sent or not, as packets are."""


class BlockTopK:
    """Keeps the `share` of blocks with the largest norms; what is left out is added next time.

    (Block top-k with error feedback: OmniReduce, SIGCOMM'21, section 7; Stich et al., NeurIPS'18.)
    """

    def __init__(self, share: float) -> None:
        self.share = share
        self._left: dict[tuple[int, int], torch.Tensor] = {}

    def apply(self, bucket: int, gradient: torch.Tensor) -> None:
        """Zero the blocks of a flat gradient, in place, that aren't sent this time."""
        key = (bucket, gradient.numel())  # DDP makes its buckets anew after the first step
        left = self._left.get(key)
        if left is not None:
            gradient.add_(left)
        size = gradient.numel()
        blocks = -(-size // BLOCK)
        kept = max(1, round(self.share * blocks))
        padded = torch.nn.functional.pad(gradient, (0, blocks * BLOCK - size)).view(blocks, BLOCK)
        norms = padded.to(torch.float32).square().sum(dim=1)
        sent = torch.zeros(blocks, 1, dtype=gradient.dtype)
        sent[torch.topk(norms, kept).indices] = 1
        whole = (padded * sent).view(-1)[:size]
        self._left[key] = gradient - whole
        gradient.copy_(whole)
