# SPDX-License-Identifier: BSD-2-Clause
"""A job's time shifts: when its iterations begin, and what becomes of those that are early or
late."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.emulator_processes import Emulator

from mltcp_tools.base.errors import UsageError
from mltcp_tools.lab.emulator.job import JobSpec
from mltcp_tools.lab.emulator.time_shift import REALIGN, Begin, Pace, TimeShift


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"period_s": 0.0}, "A slot must be"),
        ({"period_s": float("inf")}, "A slot must be"),
        ({"period_s": 1.0, "shift_s": -0.1}, "A shift must be"),
        ({"period_s": 1.0, "shift_s": float("nan")}, "A shift must be"),
    ],
)
def test_impossible_time_shifts(values: dict[str, float], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        TimeShift(**values)


def test_no_slot_is_shorter_than_the_compute_time() -> None:
    with pytest.raises(UsageError, match=r"shorter than the compute time of 0\.3 s"):
        JobSpec(1_000_000, 0.3, iterations=1, time_shifts=TimeShift(0.29))


def test_the_first_iteration_begins_when_it_is_due() -> None:
    time_shifts = TimeShift(1.0, shift_s=0.25)
    assert time_shifts.first(100.0, 100.0) == 100.25
    assert time_shifts.first(100.0, 100.25) == 100.25
    assert time_shifts.first(100.0, 100.5) == 101.25  # a job that comes later finds its place
    assert time_shifts.first(100.0, 107.0) == 107.25


def test_a_communication_that_is_too_late_takes_the_next_slot() -> None:
    pace = Pace(TimeShift(1.0), 10.0)
    assert pace.begin(10.06) == pytest.approx(Begin(11.0, 0.94, 0.06, True))
    assert pace.begin(12.0) == pytest.approx(Begin(12.0, 0.0, 0.0, False))
    assert pace.begin(16.5) == pytest.approx(Begin(17.0, 0.5, 3.5, True))
    assert pace.begin(18.0) == pytest.approx(Begin(18.0, 0.0, 0.0, False))


@given(st.lists(st.floats(0.0, 3.0), min_size=1, max_size=30))
def test_every_communication_is_near_a_slot(durations: list[float]) -> None:
    pace = Pace(TimeShift(1.0), 5.0)
    ready = 5.0
    for duration in durations:
        begin = pace.begin(ready)
        assert begin.at_s >= ready
        after = (begin.at_s + 0.5) % 1.0 - 0.5
        assert -1e-9 <= after <= REALIGN + 1e-9
        assert begin.realigned == (begin.drift_s > REALIGN)
        ready = begin.at_s + duration


def run_client(*arguments: str) -> str:
    """Return the output of a client with a server of its own."""
    with Emulator("server", "--port", "0") as server:
        port = f"--port={server.port()}"
        with Emulator("client", "127.0.0.1", port, "--bytes=10kB", *arguments) as client:
            code, text, _ = client.end()
    assert code == 0
    return text


def test_the_emulator_keeps_its_time_shifts_and_counts() -> None:
    options = ("--compute=20ms", "--jitter=100%", "--period=30ms", "--shift=60ms")
    document = json.loads(run_client(*options, "--iterations=12", "--json"))
    shifts = {"period_s": 0.03, "shift_s": 0.06}
    assert document["parameters"]["time_shifts"].items() >= shifts.items()
    iterations = document["iterations"]
    for iteration in iterations:
        drift, waited = iteration["drift"], iteration["waited"]
        slots = (drift + waited) / 0.03  # from the one that was due
        assert waited == 0 or slots == pytest.approx(round(slots), abs=1e-4)
        ready = iteration["start"] + iteration["compute"]
        assert iteration["bursts"][0]["start"] >= ready + waited - 1e-6
        assert iteration["realigned"] == (drift > REALIGN * 0.03)
    assert document["summary"]["realignments"] == sum(each["realigned"] for each in iterations)
