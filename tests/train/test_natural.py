"""Gradients sent as powers of two: right on average, alike everywhere, and they train."""

from __future__ import annotations

import math

import pytest
import torch
from train.aggregated import STEPS, WORLD, assert_alike, losses, star, train
from train.aggregated_rank import make_model

from mltcp_tools.collectives.ddp import BlockTopK
from mltcp_tools.collectives.natural import LEVELS, decode, encode


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(5)


@pytest.mark.parametrize("scale", [1e-30, 1e-3, 1.0, 1e30])
def test_each_value_becomes_a_power_of_two_next_to_it(scale: float) -> None:
    values = torch.randn(10_000, generator=generator()) * scale
    found = decode(encode(values, generator()))
    ratio = (found / values).double()
    assert ((ratio > 0.5) & (ratio <= 2)).all()
    mantissa, _ = torch.frexp(found)
    assert (mantissa.abs() == 0.5).all()


def test_values_are_right_on_average() -> None:
    values = torch.full((400_000,), 1.3)
    found = decode(encode(values, generator())).double()
    deviation = math.sqrt(0.3 * 0.7 / values.numel())  # of the mean, of 1 and 2 at random
    assert abs(float(found.mean()) - 1.3) < 6 * deviation


def test_zeros_powers_and_what_is_too_small() -> None:
    values = torch.tensor([0.0, -0.0, 4.0, -0.25, 2.0 ** (2 - LEVELS), 2.0**-LEVELS])
    found = decode(encode(values, generator()))
    assert found.tolist() == [0.0, 0.0, 4.0, -0.25, 0.0, 0.0]
    assert decode(encode(torch.zeros(3), generator())).tolist() == [0, 0, 0]


@pytest.mark.parametrize("block", [256, 352])
def test_the_largest_blocks_are_whole_packets_and_the_rest_comes_next_time(block: int) -> None:
    values = torch.randn(block * 40 + 7, generator=generator())
    sent, top_k = values.clone(), BlockTopK(0.1)
    top_k.apply(0, sent, block)
    touched = torch.nn.functional.pad(sent, (0, block - 7)).view(-1, block).any(dim=1)
    assert int(touched.sum()) == 4  # of 41
    again = torch.zeros_like(values)
    top_k.apply(0, again, block)
    assert not (sent.bool() & again.bool()).any()  # what was left out, of which again a tenth
    assert (again[again != 0] == values[again != 0]).all()


def test_what_is_not_finite_is_seen() -> None:
    assert decode(encode(torch.tensor([1.0, math.inf]), generator())).isnan().all()


def test_training_converges_as_with_whole_values() -> None:
    with star() as (net, _):
        plain = train(net, "gloo")
        compressed = train(net, "gloo", NATURAL="1")
    assert_alike(compressed)
    begin, end = losses(plain)[0], losses(plain)[-1]
    # As far down as with whole values, within a tenth of what these go down.
    assert losses(compressed)[-1] < end + 0.1 * (begin - end)
    sent = compressed[0][-1]["natural_bytes"]
    values = sum(each.numel() for each in make_model().parameters())
    most = 2 * (WORLD - 1) / WORLD * values * STEPS  # a byte for each value that a ring sends
    assert most <= sent < 1.01 * most


def test_sparse_gradients_go_as_they_do_without_it() -> None:
    with star() as (net, _):
        assert_alike(train(net, "gloo", NATURAL="1", ROWS="1"))
