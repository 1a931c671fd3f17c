# SPDX-License-Identifier: BSD-2-Clause
"""An agent that gives running jobs priorities, from its file to the classes of a queue."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from netns.backends_here import fresh_and_loaded
from netns.test_testbed_treatments import prioritised, sent_by_level
from netns.trainings import agent
from support.emulator_processes import Emulator
from support.waiting import wait_for

from mltcp_tools.kernel.backends.base import Backend
from mltcp_tools.lab.testbed.namespaces import inside
from mltcp_tools.lab.testbed.network import RECEIVER_ADDRESS, Dumbbell
from mltcp_tools.live.priorities.coflows import LEVELS
from mltcp_tools.live.priorities.live import FOLDER
from mltcp_tools.live.priorities.maps import Maps

RULES = """\
rules:
  - {job: short, command: --job=short, kinds: all}
  - {job: long, command: --job=long, kinds: all}
priorities: {interfaces: [to-router]}
"""
SIZES = {"short": "200kB", "long": "800kB"}


@contextlib.contextmanager
def jobs() -> Iterator[tuple[Backend, Dumbbell]]:
    """Two emulated jobs, of which an agent knows no more than their command lines."""
    with contextlib.ExitStack() as stack:
        backend = stack.enter_context(fresh_and_loaded("bpf"))
        network, _, _ = stack.enter_context(prioritised(marked=False))
        to_receiver = ("ip", "netns", "exec", network.receiver)
        listening = ("server", "--bind", RECEIVER_ADDRESS, "--port", "0")
        server = stack.enter_context(Emulator(*listening, prefix=to_receiver))
        port = server.port()
        for name, size in SIZES.items():
            job = ("client", RECEIVER_ADDRESS, f"--port={port}", f"--job={name}")
            what = (f"--bytes={size}", "--compute=60ms", "--duration=600s")
            from_sender = ("ip", "netns", "exec", network.senders[0])
            stack.enter_context(Emulator(*job, *what, prefix=from_sender))
        yield backend, network


def grows(read: Callable[[], int], by: int) -> Callable[[], bool]:
    """Return whether a count has grown by so much since this call."""
    before = read()
    return lambda: read() >= before + by


def bursts_of(maps: Maps, job: int) -> int:
    """Return how many bursts of a job were heard."""
    burst = maps.burst(job)
    return burst.number if burst else 0


def filters(network: Dumbbell) -> str:
    """Return what looks at the packets that the jobs' host sends."""
    with inside(network.senders[0]):
        show = ["tc", "filter", "show", "dev", "to-router", "egress"]
        return subprocess.run(show, capture_output=True, text=True, check=False).stdout


@pytest.mark.bpf
def test_jobs_that_run_already_get_priorities(tmp_path: Path) -> None:
    with jobs() as (backend, network):
        with inside(network.senders[0]), agent(tmp_path, RULES) as running:
            wait_for(lambda: len(backend.jobs()) == len(SIZES), "both jobs are followed")
            ids = {job.name: job.id for job in backend.jobs()}
            with Maps(FOLDER) as maps:
                wait_for(lambda: all(bursts_of(maps, job) > 3 for job in ids.values()), "bursts")
                wait_for(lambda: 0 in map(maps.level, ids.values()), "one is first")
                wait_for(lambda: 1 in map(maps.level, ids.values()), "one is behind it")
                wait_for(
                    grows(lambda: sent_by_level(network)[0], 200_000), "the best level is used"
                )
            said = running.stop()
            assert running.process.returncode == 0, said
            assert "priorities" not in said
        assert not FOLDER.exists()
        assert "mltcp_mark" not in filters(network)
        wait_for(grows(lambda: sent_by_level(network)[LEVELS - 1], 200_000), "all are alike")


@pytest.mark.bpf
def test_an_agent_that_is_killed_leaves_all_jobs_alike(tmp_path: Path) -> None:
    with jobs() as (backend, network), inside(network.senders[0]):
        with agent(tmp_path, RULES) as running:
            wait_for(grows(lambda: sent_by_level(network)[0], 200_000), "the best level is used")
            running.process.kill()
            running.process.wait()

            def alike() -> bool:
                """Half a megabyte, and all of it with the level of those that have none."""
                before = sent_by_level(network)
                wait_for(lambda: sum(sent_by_level(network)) > sum(before) + 500_000, "sending")
                return sent_by_level(network)[: LEVELS - 1] == before[: LEVELS - 1]

            wait_for(alike, "all jobs are alike")
        assert "mltcp_mark" in filters(network)
        with agent(tmp_path, RULES) as again:
            wait_for(grows(lambda: sent_by_level(network)[0], 200_000), "the best level is used")
            again.stop()
            assert again.process.returncode == 0, again.said()
        assert not FOLDER.exists()
        assert "mltcp_mark" not in filters(network)
        assert {job.name for job in backend.jobs()} <= set(SIZES)
