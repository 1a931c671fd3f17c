# SPDX-License-Identifier: BSD-2-Clause
"""The event simulations against schedules worked out by hand, and against what must always hold."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mltcp_tools.lab.simulator.schedules import (
    SCHEDULES,
    Schedule,
    ScheduledJob,
    iterations_of,
    simulate_bursts,
)


def spans(bursts: pd.DataFrame, job: str) -> list[tuple[float, float]]:
    rows = bursts[bursts["job"] == job]
    return [
        (pytest.approx(s), pytest.approx(e)) for s, e in zip(rows.start_s, rows.end_s, strict=True)
    ]


def test_bound_serves_in_order_of_arrival() -> None:
    jobs = [ScheduledJob("a", 0.0, [1.0, 1.0], 1.0), ScheduledJob("b", 0.5, [1.0, 1.0], 1.0)]
    bursts = simulate_bursts("bound", jobs)
    # a asks at 1 and is served until 2; b asks at 1.5, waits, and is served from 2 to 3.
    assert spans(bursts, "a") == [(1.0, 2.0), (3.0, 4.0)]
    assert spans(bursts, "b") == [(1.5, 3.0), (4.0, 5.0)]


def test_fair_shares_the_link_equally() -> None:
    jobs = [ScheduledJob("a", 0.0, [1.0, 1.0], 1.0), ScheduledJob("b", 0.5, [1.0], 1.0)]
    bursts = simulate_bursts("fair", jobs)
    # From 1 to 1.5 a is alone; then both get half until a has its second half at 2.5; b ends at 3.
    assert spans(bursts, "a") == [(1.0, 2.5), (3.5, 4.5)]
    assert spans(bursts, "b") == [(1.5, 3.0)]


def test_alone_adds_compute_and_communication() -> None:
    jobs = [ScheduledJob("a", 0.25, [1.0, 2.0], 0.5), ScheduledJob("b", 0.0, [1.0], 0.5)]
    table = iterations_of(simulate_bursts("alone", jobs), jobs)
    assert list(table[table.job == "a"]["start_s"]) == pytest.approx([0.25, 1.75])
    assert list(table[table.job == "a"]["end_s"]) == pytest.approx([1.75, 4.25])
    assert list(table["comm_s"]) == pytest.approx([0.5] * 3)


def test_several_bursts_split_compute_and_communication_evenly() -> None:
    jobs = [ScheduledJob("a", 0.0, [1.0, 1.0], 0.4, bursts=2)]
    bursts = simulate_bursts("bound", jobs)
    assert spans(bursts, "a") == [(0.5, 0.7), (1.2, 1.4), (1.9, 2.1), (2.6, 2.8)]
    assert list(bursts["burst"]) == [1, 2, 1, 2]
    table = iterations_of(bursts, jobs)
    assert list(table["comm_s"]) == pytest.approx([0.4, 0.4])
    assert list(table["start_s"]) == pytest.approx([0.0, 1.4])


job_lists = st.lists(
    st.tuples(
        st.floats(0, 2),
        st.lists(st.floats(0.01, 2), min_size=1, max_size=6),
        st.floats(0.01, 1),
        st.integers(1, 3),
    ),
    min_size=1,
    max_size=4,
).map(
    lambda rows: [
        ScheduledJob(f"job-{i}", start, compute, comm, bursts)
        for i, (start, compute, comm, bursts) in enumerate(rows)
    ]
)


@settings(max_examples=60)
@given(job_lists)
def test_every_schedule_serves_all_and_none_beats_alone(jobs: list[ScheduledJob]) -> None:
    for schedule in SCHEDULES:
        bursts = simulate_bursts(schedule, jobs)
        assert len(bursts) == sum(len(job.compute_s) * job.bursts for job in jobs)
        for job in jobs:
            rows = bursts[bursts["job"] == job.name]
            least = job.isolated_comm_s / job.bursts
            assert ((rows["end_s"] - rows["start_s"]) >= least - 1e-9).all()
            assert (np.diff(rows["start_s"]) > 0).all()


@settings(max_examples=60)
@given(job_lists)
def test_bound_serves_one_at_a_time_and_never_idles(jobs: list[ScheduledJob]) -> None:
    work_s = {job.name: job.isolated_comm_s / job.bursts for job in jobs}
    rows = simulate_bursts("bound", jobs).sort_values(["end_s"])
    free_s = 0.0
    for row in rows.itertuples():
        served_from_s = row.end_s - work_s[row.job]
        assert served_from_s == pytest.approx(max(row.start_s, free_s), abs=1e-9)
        free_s = row.end_s


@settings(max_examples=60)
@given(job_lists)
def test_fair_keeps_the_link_busy_while_anything_waits(jobs: list[ScheduledJob]) -> None:
    bursts = simulate_bursts("fair", jobs).sort_values("start_s")
    work_s = sum(len(job.compute_s) * job.isolated_comm_s for job in jobs)
    busy_s, until_s = 0.0, 0.0
    for row in bursts.itertuples():
        busy_s += max(0.0, row.end_s - max(row.start_s, until_s))
        until_s = max(until_s, row.end_s)
    assert busy_s == pytest.approx(work_s)


def times_of(schedule: Schedule, paths: dict[str, tuple[str, ...]]) -> dict[str, list[float]]:
    """Return when each job's first burst ends, if all ask at 1 s for 1 s of their links."""
    jobs = [ScheduledJob(name, 0.0, [1.0], 1.0, links=links) for name, links in paths.items()]
    return dict(simulate_bursts(schedule, jobs).groupby("job")["end_s"].apply(list))


def test_jobs_that_share_no_link_do_not_meet() -> None:
    apart = {"a": ("one",), "b": ("two",)}
    for schedule in SCHEDULES:
        assert times_of(schedule, apart) == {"a": [2.0], "b": [2.0]}


def test_shares_are_max_min_fair() -> None:
    # Three cross link one, one of them link two as well, where another has what that leaves.
    paths = {"a": ("one",), "b": ("one",), "c": ("one", "two"), "d": ("two",)}
    ends = times_of("fair", paths)
    assert ends["d"] == [pytest.approx(1 + 1 / (2 / 3))]
    assert ends["a"] == ends["b"] == ends["c"] == [pytest.approx(4.0)]
