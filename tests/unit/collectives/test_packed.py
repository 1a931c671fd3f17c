"""Packing of small blocks, and the knowledge of a sum's zeros."""

from __future__ import annotations

import numpy as np

from mltcp_tools.collectives.packed import MOST_RANKS, Densities, block_of


def test_densities_of_chunks_follow_from_those_of_their_blocks() -> None:
    present = np.zeros(30, dtype=bool)
    present[[0, 1, 29]] = True
    found = Densities.of(present, values=11 * 32)  # chunks of eleven blocks, the last one short
    assert found.blocks == 3 / 30
    assert found.chunks == 2 / 3


def test_a_packet_is_cut_into_whole_blocks() -> None:
    assert [block_of(values) for values in (352, 1024, 340, 4)] == [32, 32, 20, 4]


def test_blocks_are_packed_where_that_sends_less() -> None:
    scattered = Densities(chunks=1.0, blocks=0.1)
    assert scattered.pack(10_000_000, ranks=4)
    assert not scattered.pack(10_000, ranks=4)  # agreeing costs more than it saves
    assert not scattered.pack(10_000_000, MOST_RANKS + 1)
    assert not Densities(chunks=0.1, blocks=0.1).pack(10_000_000, ranks=4)
    assert not Densities().pack(10_000_000, ranks=4)
