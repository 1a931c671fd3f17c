"""Averages of gradients that are sent as powers of two: a byte for a value instead of four.

Natural compression (Horvath et al., 2019, arXiv 1905.10988): a value becomes one of the two powers
of two around it, at random, such that it is right on average. A byte holds the sign and which of
127 powers it is, below the largest of its part; what is smaller than all of these is zero. What
compression left out is added to the next step's values (error feedback).

Each rank sums up one part of the tensor, from all ranks' bytes, and sends the average out as bytes
again: 2(n-1)/n of a quarter of the tensor go out of each rank, a quarter of what a ring sends.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

LEVELS = 127
_HEADER = 4  # bytes before a part's: the exponent of its largest power, as int32
_NOT_FINITE = 2**30


def encode(values: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Flat float32 as bytes: a header, then one for each value."""
    codes = torch.zeros(_HEADER + values.numel(), dtype=torch.uint8)
    header = codes[:_HEADER].view(torch.int32)
    if not bool(values.isfinite().all()):
        header[0] = _NOT_FINITE
        return codes
    mantissa, exponent = torch.frexp(values)  # |mantissa| in [0.5, 1), or 0
    up = torch.rand(values.shape, generator=generator) < 2 * mantissa.abs() - 1
    power = exponent - 1 + up
    there = mantissa != 0
    top = int(power[there].max()) if bool(there.any()) else 0
    header[0] = top
    level = LEVELS - (top - power)
    level = torch.where(there & (level > 0), level, 0)
    codes[_HEADER:] = level + 128 * (values < 0) * (level > 0)
    return codes


def decode(codes: torch.Tensor) -> torch.Tensor:
    """The float32 that `encode` sent; NaNs where it was given what isn't finite."""
    top = int(codes[:_HEADER].clone().view(torch.int32)[0])
    body = codes[_HEADER:].to(torch.int32)
    if top == _NOT_FINITE:
        return torch.full(body.shape, float("nan"))
    level = body & 127
    sign = torch.where(level == 0, 0.0, torch.where(body > 127, -1.0, 1.0))
    # In two factors, as the smallest powers alone are below what a float32's exponent reaches.
    power = top - LEVELS + level
    half = power // 2
    return torch.ldexp(torch.ldexp(sign, half), power - half)


class Natural:
    """The averages of a group of ranks, and what compression left out so far at this one.

    sent_bytes: of what this rank gave to others.
    """

    def __init__(self, group: Any, rank: int, world: int) -> None:
        self._group, self._rank, self._world = group, rank, world
        self._generator = torch.Generator().manual_seed(rank)
        self._left: dict[tuple[int, int], torch.Tensor] = {}
        self._left_of_part: dict[tuple[int, int], torch.Tensor] = {}
        self.sent_bytes = 0

    def average(self, bucket: int, gradient: torch.Tensor) -> None:
        """Average a flat gradient over the ranks, in place; all ranks call it.

        The same bits everywhere. What isn't finite at some rank makes NaNs of its part at all.
        """
        key = (bucket, gradient.numel())  # DDP makes its buckets anew after the first step
        size = -(-gradient.numel() // self._world)
        padded = torch.zeros(self._world * size)
        padded[: gradient.numel()] = gradient
        if key in self._left:
            padded += self._left[key]
        parts = [encode(part, self._generator) for part in padded.view(self._world, size)]
        left = padded - torch.cat([decode(part) for part in parts])
        self._left[key] = left.nan_to_num_(0.0, 0.0, 0.0)
        came = torch.empty(self._world, _HEADER + size, dtype=torch.uint8)
        dist.all_to_all_single(came, torch.stack(parts), group=self._group)
        own = torch.stack([decode(each) for each in came]).sum(dim=0) / self._world
        if key in self._left_of_part:
            own += self._left_of_part[key]
        codes = encode(own, self._generator)
        self._left_of_part[key] = (own - decode(codes)).nan_to_num_(0.0, 0.0, 0.0)
        told = torch.empty(self._world * codes.numel(), dtype=torch.uint8)
        dist.all_gather_into_tensor(told, codes, group=self._group)
        whole = torch.cat([decode(each) for each in told.view(self._world, -1)])
        gradient.copy_(whole[: gradient.numel()])
        self.sent_bytes += 2 * (self._world - 1) * codes.numel()
