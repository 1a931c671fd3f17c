"""Going on without late ranks, on iteration times as a trace has them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mltcp_tools.collectives.adaptive.straggling import read_times, straggling
from mltcp_tools.errors import UsageError


def test_one_straggler_in_turn_costs_those_who_wait_its_delay_each_time() -> None:
    compute = np.ones((100, 4))
    compute[np.arange(0, 100, 2), np.arange(50) % 4] = 3.0
    found = straggling(compute, collective=0.1)
    assert found.waiting == pytest.approx(2.1)  # 1 and 3 in turn, and the collective
    assert found.going_on < 1.6
    assert found.gain == found.waiting / found.going_on
    assert 0 < found.late < 0.6
    assert found.none_late == pytest.approx(1.5 * 0.25 + 1 * 0.75 + 0.1, rel=0.2)


def test_equal_ranks_gain_nothing_and_a_rank_that_is_always_slow_sets_the_pace() -> None:
    assert straggling(np.ones((50, 4)), 0.1).gain == pytest.approx(1)
    slow = np.ones((200, 4))
    slow[:, 3] = 2.0
    assert straggling(slow, 0.1).going_on == pytest.approx(2.0, rel=0.06)


def test_a_trace_is_read_by_its_columns_and_incomplete_iterations_are_left_out(
    tmp_path: Path,
) -> None:
    path = tmp_path / "times.csv"
    path.write_text(
        "worker,gpu,time,batch_time_norm\n0,1,1,10\n1,1,1,12\n0,1,2,11\n0,1,3,9\n1,1,3,8\n"
    )
    assert read_times(path).tolist() == [[10, 12], [9, 8]]
    path.write_text("a,b\n1,2\n")
    with pytest.raises(UsageError, match="worker, time, batch_time_norm"):
        read_times(path)
