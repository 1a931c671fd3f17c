# SPDX-License-Identifier: BSD-2-Clause
"""Sums without blocks that are zero everywhere, from host to host.

OmniReduce (SIGCOMM'21) finds the next block with something in it as it goes, which takes an
aggregator that knows what each worker has next. Between hosts the ranks agree on the blocks
beforehand, by a bitmap of 1/1024 of the tensor's size, and sum up what is left by a ring.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from mltcp_tools.collectives.collective import BLOCK

DENSE_FROM = 0.95
"""Share of blocks from which on packing them costs more than it saves."""


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
