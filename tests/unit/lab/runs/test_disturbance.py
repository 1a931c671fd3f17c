"""The rule by which an arm counts as disturbed."""

from __future__ import annotations

from typing import Any

import pytest

from mltcp_tools.lab.runs.disturbance import judge

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
