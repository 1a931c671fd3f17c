# SPDX-License-Identifier: BSD-2-Clause
"""Messages to the controller about jobs that run already."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from mltcp_tools.kernel.backends.base import Flow, Job, JobParams
from mltcp_tools.live.priorities.live import known_job
from mltcp_tools.live.priorities.maps import KnownJob


def flow(learned: int = 0, gap_s: float = 0.0) -> Flow:
    kinds = {field.name: field.type for field in dataclasses.fields(Flow)}
    values: dict[str, Any] = {name: "" if kind == "str" else 0 for name, kind in kinds.items()}
    return Flow(**values | {"learned_bytes": learned, "learned_gap_s": gap_s})


@pytest.mark.parametrize(
    ("params", "flows", "known"),
    [
        # What the job says counts for each flow, whatever they learned.
        (JobParams(burst_bytes=1000, gap_s=0.2), [flow(5), flow()], (2000, 200_000_000)),
        # What the flows learned: all bytes, the shortest gap, of which a half ends a burst.
        (JobParams(), [flow(700, 0.5), flow(300, 0.3)], (1000, 150_000_000)),
        # One of them doesn't know yet: a burst is as long as the one before it.
        (JobParams(), [flow(700, 0.5), flow()], (0, 250_000_000)),
        # Nobody knows anything.
        (JobParams(), [flow()], (0, 10_000_000)),
    ],
)
def test_a_job_is_what_it_says_or_what_its_flows_learned(
    params: JobParams, flows: list[Flow], known: tuple[int, int]
) -> None:
    assert known_job(Job(1, "one", params), flows) == KnownJob(*known)
