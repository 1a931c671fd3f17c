# SPDX-License-Identifier: BSD-2-Clause
"""Sockets and jobs that have left: the maps of an agent's priorities hold those that are there."""

from __future__ import annotations

import contextlib
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from netns.test_testbed_treatments import a_flow

from mltcp_tools.kernel.backends.base import Job, JobParams
from mltcp_tools.kernel.native.bpf_maps import BpfMap
from mltcp_tools.lab.testbed.leftovers import priorities_folder
from mltcp_tools.live.priorities.live import LivePriorities, Prioritised
from mltcp_tools.live.priorities.maps import Maps
from mltcp_tools.live.trial.rollback import Lease
from mltcp_tools.live.trial.subjects import Subject

SOCKETS_MAX, JOBS_MAX = 65536, 4096
"""Those of bpf/priority.bpf.c."""

pytestmark = pytest.mark.bpf


class Followed:
    """Priorities on no interface, and what is in their maps."""

    def __init__(self, live: LivePriorities, folder: Path, stack: contextlib.ExitStack) -> None:
        self._live = live
        self.maps = stack.enter_context(Maps(folder))
        self._opened = {
            name: stack.enter_context(BpfMap.pinned(folder / f"priority_{name}"))
            for name in ("sockets", "jobs", "bursts", "levels")
        }

    def follow(self, jobs: dict[int, str], flows: dict[int, int]) -> None:
        """jobs: names by id. flows: ids of their jobs by cookie."""
        known = [Job(job, name, JobParams(gap_s=0.01)) for job, name in jobs.items()]
        self._live.follow(known, [a_flow(cookie, job) for cookie, job in flows.items()])

    def send(self, job: int) -> None:
        """Have the job in a burst, as the program would, with a level."""
        now = time.monotonic_ns()
        burst = struct.pack("=QQQQII", 10, now, now, 20, 3, 1)
        self._opened["bursts"].set(struct.pack("=I", job), burst)
        self.maps.set_level(job, 2)

    def sockets(self) -> dict[int, int]:
        """Return the job of each socket, by its cookie."""
        opened = self._opened["sockets"]
        found = {key: opened.get(key) for key in opened.all_keys()}
        return {
            struct.unpack("=Q", key)[0]: struct.unpack("=I", value)[0]
            for key, value in found.items()
            if value is not None
        }

    def jobs(self) -> list[list[int]]:
        """Return the ids of the jobs, those of bursts and those of levels."""
        maps = [self._opened[name] for name in ("jobs", "bursts", "levels")]
        return [sorted(struct.unpack("=I", key)[0] for key in each.all_keys()) for each in maps]


@pytest.fixture
def followed() -> Iterator[Followed]:
    folder = priorities_folder("forgotten")
    with (
        LivePriorities(Prioritised((), elsewhere=True), folder) as live,
        contextlib.ExitStack() as stack,
    ):
        yield Followed(live, folder, stack)


def test_more_sockets_and_jobs_pass_than_there_is_room_for(followed: Followed) -> None:
    for first in (1, SOCKETS_MAX):
        followed.follow({1: "one"}, dict.fromkeys(range(first, first + SOCKETS_MAX - 1), 1))
    for first in (1, JOBS_MAX):
        ids = range(first, first + JOBS_MAX - 1)
        followed.follow({job: f"job-{job}" for job in ids}, {job: job for job in ids})
        for job in ids:
            followed.send(job)
    assert followed.sockets() == {job: job for job in ids}
    assert followed.jobs() == [list(ids)] * 3


def test_those_that_stay_are_left_alone(followed: Followed) -> None:
    followed.follow({1: "one", 2: "two"}, {10: 1, 11: 1, 20: 2})
    followed.send(1)
    followed.send(2)
    # One of the first's sockets has left, and the second is between two connections.
    followed.follow({1: "one", 2: "two"}, {11: 1})
    assert followed.sockets() == {11: 1}
    assert followed.jobs() == [[1, 2]] * 3
    # A socket that was taken off its job comes back, and another is given to another job.
    followed.follow({1: "one", 2: "two"}, {10: 1, 11: 2})
    assert followed.sockets() == {10: 1, 11: 2}
    followed.follow({2: "two"}, {11: 2})
    assert followed.sockets() == {11: 2}
    assert followed.jobs() == [[2]] * 3


def test_an_id_that_is_used_again_inherits_no_burst(followed: Followed) -> None:
    followed.follow({1: "one"}, {10: 1})
    followed.send(1)
    followed.follow({1: "other"}, {11: 1})
    assert followed.sockets() == {11: 1}
    # The controller takes the level for given, and knows better only with the next burst.
    assert followed.jobs() == [[1], [], [1]]
    # The next one has no connection yet.
    followed.follow({1: "third"}, {})
    assert (followed.sockets(), followed.jobs()) == ({}, [[], [], []])


def test_jobs_on_trial_keep_their_priorities_without_mltcp(followed: Followed) -> None:
    followed.follow({1: "one", 2: "two"}, {10: 1, 20: 2})
    followed.send(1)
    with Lease([Subject("one", None, None, [])]):
        followed.follow({}, {})
        assert followed.sockets() == {10: 1}
        assert followed.jobs() == [[1]] * 3
        # Back in mltcp, by another id.
        followed.follow({3: "one"}, {10: 3})
        assert followed.sockets() == {10: 3}
    followed.follow({3: "one"}, {10: 3})
    assert followed.jobs() == [[3], [], []]
