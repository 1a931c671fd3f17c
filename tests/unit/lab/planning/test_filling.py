# SPDX-License-Identifier: BSD-2-Clause
"""Max-min shares, from Python."""

from __future__ import annotations

import numpy as np
import pytest

from mltcp_tools.lab.planning.filling import Filling


def users(*numbers: int) -> np.ndarray:
    """Numbers of users as an array of them."""
    return np.array(numbers, dtype=np.intp)


def test_everybody_rises_alike_until_a_link_is_full() -> None:
    filling = Filling([[0], [0, 1], [1]], np.array([10.0, 4.0]))
    assert filling.shares([users(0, 1, 2)]) == pytest.approx([8.0, 2.0, 2.0])
    # Nothing is left of what was shared before.
    assert filling.shares([users(0, 2)]) == pytest.approx([10.0, 0.0, 4.0])


def test_a_later_class_has_what_the_ones_before_leave() -> None:
    filling = Filling([[0], [0, 1], [1]], np.array([10.0, 4.0]))
    assert filling.shares([users(1), users(0, 2)]) == pytest.approx([6.0, 4.0, 0.0])
    assert filling.shares([users(2), users(0, 1)]) == pytest.approx([10.0, 0.0, 4.0])
    assert filling.shares([]).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("seed", range(20))
def test_every_user_has_a_full_link_on_which_nobody_has_more(seed: int) -> None:
    draw = np.random.default_rng(seed)
    capacity = draw.uniform(1e6, 1e9, 6)
    paths = [draw.choice(6, draw.integers(1, 5), replace=False).tolist() for _ in range(12)]
    shares = Filling(paths, capacity).shares([np.arange(12, dtype=np.intp)])
    load = np.array(
        [sum(s for s, p in zip(shares, paths, strict=True) if n in p) for n in range(6)]
    )
    assert (load <= capacity * (1 + 1e-9)).all()
    for share, path in zip(shares, paths, strict=True):
        full = [link for link in path if load[link] >= capacity[link] * (1 - 1e-9)]
        most = [max(s for s, p in zip(shares, paths, strict=True) if link in p) for link in full]
        assert any(share >= each * (1 - 1e-9) for each in most)
