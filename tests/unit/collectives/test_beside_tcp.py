# SPDX-License-Identifier: BSD-2-Clause
"""A worker's window: alone it fills its link, beside a reno flow it takes what another would."""

from __future__ import annotations

import pytest
from support.aggregation.beside import share


@pytest.mark.parametrize(("queue", "delay_s"), [(100_000, 1e-4), (30_000, 1e-4), (100_000, 1e-3)])
def test_alone_it_fills_its_link(queue: int, delay_s: float) -> None:
    alone = share(queue=queue, delay_s=delay_s, wake_s=5e-5, seconds=5, skip=1, reno=False)
    assert alone.worker >= 0.9 * 100e6


@pytest.mark.parametrize("wake_s", [1e-5, 1e-4, 3e-4])
def test_beside_reno_it_takes_no_more_than_a_little_over_half(wake_s: float) -> None:
    """wake_s: how long a worker takes to look at what came; who is slower gets less."""
    shares = [share(wake_s=wake_s, seconds=10, skip=2, seed=seed) for seed in (1, 2)]
    worker, reno = (sum(getattr(each, name) for each in shares) for name in ("worker", "reno"))
    assert 0.5 * reno <= worker <= 1.3 * reno
    assert worker + reno >= 0.9 * 2 * 100e6
