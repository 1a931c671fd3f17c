# SPDX-License-Identifier: BSD-2-Clause
"""The rule by which a variant counts as disturbed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from mltcp_tools.kernel.host.disturbance import Second
from mltcp_tools.lab.runs.disturbance import judge, rows_of
from mltcp_tools.lab.runs.folder import write_tables

CALM = {"stolen": 0.0, "others": 0.02, "queued": 0.1, "late_s": 0.0001, "latest_s": 0.002}


def rows(bad: int, **changes: Any) -> list[dict[str, Any]]:
    return [CALM | (changes if index < bad else {}) for index in range(20)]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"stolen": 0.5}, "the hypervisor took 10% of the CPUs' time"),
        ({"late_s": 0.004}, "timers fired 0.9 ms late"),
        ({"latest_s": 0.3}, "at worst 300"),
        ({"queued": 1.1, "others": 0.6}, "the jobs waited 0.30 s per second for a CPU"),
    ],
)
def test_a_tenth_of_the_seconds_may_be_disturbed(changes: dict[str, float], said: str) -> None:
    calm, bad = judge(rows(2, **changes)), judge(rows(4, **changes))
    assert calm is not None
    assert bad is not None
    assert not calm.disturbed
    assert bad.disturbed
    assert bad.share == pytest.approx(0.2)
    assert said in bad.sentence()


@pytest.mark.parametrize("changes", [{"queued": 1.5}, {"late_s": 0.004, "own": 0.9}])
def test_a_host_that_is_too_small_for_the_jobs_is_no_disturbance(
    changes: dict[str, float],
) -> None:
    found = judge(rows(20, **changes))
    assert found is not None
    assert not found.disturbed


@pytest.mark.parametrize("unknown", [None, float("nan")])
def test_what_is_not_known_disturbs_nothing(unknown: float | None) -> None:
    found = judge(rows(20, queued=unknown, others=unknown))
    assert found is not None
    assert (found.disturbed, found.queued, found.others) == (False, None, None)
    assert judge([]) is None


def test_skipped_programs_are_counted_and_no_reason_to_run_again() -> None:
    often = judge(rows(5, skipped=2))
    assert often is not None
    assert (often.disturbed, often.skipped) == (False, 10)


def test_what_was_watched_is_what_a_run_folder_keeps(tmp_path: Path) -> None:
    """All of it: the report once lacked the busiest CPU, as no column had its name."""
    watched = Second(100.0, 1.0, 0.01, 0.8, 0.3, 0.02, 0.1, 0.2, 0.0001, 0.002, 3)
    key = {"variant": "mltcp", "repetition": 1, "attempt": 1}
    kept = [key | row for row in rows_of([watched], 99.5)]
    write_tables(tmp_path, {"disturbance": kept})
    assert pd.read_csv(tmp_path / "disturbance.csv").to_dict("records") == kept


def test_a_column_that_no_table_has_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="The table variants has no column cores"):
        write_tables(tmp_path, {"variants": [{"variant": "mltcp", "repetition": 1, "cores": 2}]})
    assert list(tmp_path.iterdir()) == []
