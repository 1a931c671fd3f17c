# SPDX-License-Identifier: BSD-2-Clause
"""Sockets that are attached, as tests see them."""

from __future__ import annotations

from netns.trainings import Training

from mltcp_tools.kernel.backends.base import Backend, Job, JobParams
from mltcp_tools.live.attach.access import Change
from mltcp_tools.live.attach.processes import process
from mltcp_tools.live.attach.sockets import Socket, sockets
from mltcp_tools.live.attach.state import STATE_DIR, StateFiles

JOB = Job(7, "seven", JobParams(burst_bytes=1_000_000, gap_s=0.05))


def assert_nothing_recorded() -> None:
    assert not STATE_DIR.exists() or not list(STATE_DIR.glob("*.json"))


def connections(held: Training) -> list[Socket]:
    """The process's connections, by descriptor."""
    return [each for each in sockets(process(held.pid)) if each.state == "established"]


def outcomes(changes: list[Change]) -> list[str]:
    return [change.outcome for change in changes]


def tags(backend: Backend) -> dict[int, int]:
    return {flow.cookie: flow.job_id for flow in backend.flows() if flow.job_id}


def recorded() -> dict[str, set[int]]:
    """The recorded sockets of each job, by descriptor."""
    return {
        state.job.name: {record.fd for record in state.sockets} for state in StateFiles().read()
    }
