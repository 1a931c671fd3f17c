"""Sums at an aggregator of small blocks that aren't zero, several to a packet (block fusion).

A packet's chunk goes whole where any of its values isn't zero, so a tensor whose values lie far
apart is sent whole. Here the ranks first agree on the blocks with anything in them, by counting for
each block the ranks that have something, and then sum up these blocks side by side (OmniReduce,
SIGCOMM'21, section 3.2, fuses blocks in a message as it goes; the result is the same).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mltcp_tools.collectives.library import How, Kind
from mltcp_tools.collectives.session import Session

_MOST_VALUES = 32  # of a block

MOST_RANKS = 15
"""As a block's count has four bits."""

_PER_WORD = 8
_WORTH_BYTES = (
    20_000  # another round trip, and packets to agree on exponents, take as long as these
)

Bits = npt.NDArray[Any]


@dataclass(frozen=True)
class Densities:
    """Shares that aren't zero, of a sum, which are the same at all ranks. chunks: of packets'."""

    chunks: float = 1.0
    blocks: float = 1.0

    @classmethod
    def of(cls, present: npt.NDArray[np.bool_], values: int) -> Densities:
        """present: for each block. values: of a chunk."""
        each = values // block_of(values)
        padded = np.pad(present, (0, -present.size % each))
        return cls(float(padded.reshape(-1, each).any(axis=1).mean()), float(present.mean()))

    def pack(self, size: int, ranks: int) -> bool:
        """Tell whether packing blocks of `size` bytes sends less than leaving out chunks."""
        agreeing = size / _MOST_VALUES / _PER_WORD + _WORTH_BYTES
        return ranks <= MOST_RANKS and self.blocks * size + agreeing < self.chunks * size


def block_of(values: int) -> int:
    """Values of a block where a packet has `values`, a multiple of 4, so that it has whole ones."""
    return next(block for block in range(_MOST_VALUES, 0, -4) if values % block == 0)


def reduce_packed(
    session: Session, bits: Bits, kind: Kind, how: How, timeout_s: float
) -> npt.NDArray[np.bool_] | None:
    """Sum a flat array in place; which blocks have something then, None where it isn't finite.

    bits: the values, as an array of any type of their size. The array is as it was where it isn't
    finite, or SessionError is raised.
    """
    block = block_of(session.worker.chunk(kind))
    present = session.worker.present_blocks(bits.ctypes.data, bits.size, kind, block)
    counts = np.pad(present, (0, -present.size % _PER_WORD)).astype(np.uint32)
    shifts = np.arange(_PER_WORD, dtype=np.uint32) * 4
    words = (counts.reshape(-1, _PER_WORD) << shifts).sum(axis=1, dtype=np.uint32)
    at = words.ctypes.data
    session.reduce(at, at, words.size, Kind.INT32, How.SUM, timeout_s)
    union = ((words[:, None] >> shifts) & 15).astype(bool).ravel()[: present.size]
    where = np.repeat(union, block)[: bits.size]
    packed = bits[where]
    if packed.size:
        at = packed.ctypes.data
        if not session.reduce(at, at, packed.size, kind, how, timeout_s):
            return None
    bits[...] = 0  # what is left out may be -0 at some ranks
    bits[where] = packed
    return np.asarray(union)
