"""Sums without blocks that are zero everywhere, from host to host.

OmniReduce (SIGCOMM'21) finds the next block with something in it as it goes, which takes an
aggregator that knows what each worker has next. Between hosts the ranks agree on the blocks
beforehand, by a bitmap of 1/1024 of the tensor's size, and sum up what is left by a ring.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from mltcp_tools.collectives.library import Chunks

BLOCK = 256
"""Values of a block."""

DENSE_FROM = 0.95
"""Share of blocks from which on packing them costs more than it saves."""


@dataclass
class Sum:
    """Of a reduction. chunks: None, or those that `result` has; the others are zero."""

    result: torch.Tensor
    chunks: Chunks | None = None

    def whole(self) -> torch.Tensor:
        """With the zeros."""
        if self.chunks:
            marks = torch.from_numpy(self.chunks.summed())
            there = marks.repeat_interleave(self.chunks.values)[: self.result.numel()]
            self.result[~there] = 0
            self.chunks = None
        return self.result


def reduce_union(tensor: torch.Tensor, group: Any, expected: float = 0.0) -> float:
    """Sum a contiguous tensor over the ranks of `group`, in place; all ranks call it.

    expected: share of blocks that aren't zero, equal at all ranks; from DENSE_FROM on the ranks
    don't agree on blocks, which would cost a bitmap for nothing. Returns the share that it was.
    """
    flat = tensor.view(-1)
    whole = flat.numel() // BLOCK * BLOCK
    blocks = flat[:whole].view(-1, BLOCK)
    if not blocks.numel():
        dist.all_reduce(flat, group=group)
        return 1.0
    if expected >= DENSE_FROM:
        dist.all_reduce(flat, group=group)
        return float(blocks.any(dim=1).float().mean())
    has = blocks.any(dim=1).to(torch.uint8)
    dist.all_reduce(has, dist.ReduceOp.MAX, group=group)
    chosen = has.nonzero().squeeze(1)
    density = float(chosen.numel() / has.numel())
    if density >= DENSE_FROM:
        dist.all_reduce(flat, group=group)
        return density
    packed = torch.cat([blocks[chosen].view(-1), flat[whole:]])
    if packed.numel():
        dist.all_reduce(packed, group=group)
    count = chosen.numel() * BLOCK
    blocks.zero_()  # what is left out may be -0 at some ranks
    blocks[chosen] = packed[:count].view(-1, BLOCK)
    flat[whole:] = packed[count:]
    return density
