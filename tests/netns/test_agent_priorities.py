"""An agent that gives running jobs priorities, from its file to the classes of a queue."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from netns.backends_here import fresh_and_loaded
from netns.test_testbed_treatments import prioritised, sent_by_level
from netns.trainings import agent
from support.emulator_processes import Emulator
from support.waiting import wait_for

from mltcp_tools.priorities.live import FOLDER
from mltcp_tools.priorities.maps import LEVELS, Maps
from mltcp_tools.testbed.namespaces import inside
from mltcp_tools.testbed.network import RECEIVER_ADDRESS

RULES = """\
rules:
  - {job: short, command: --job=short, kinds: all}
  - {job: long, command: --job=long, kinds: all}
priorities: {interfaces: [to-router]}
"""
SIZES = {"short": "200kB", "long": "800kB"}


@pytest.mark.bpf
def test_jobs_that_run_already_get_priorities(tmp_path: Path) -> None:
    """Two emulated jobs, of which the agent knows no more than their command lines."""
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
        with inside(network.senders[0]):
            running = stack.enter_context(agent(tmp_path, RULES))
        wait_for(lambda: len(backend.jobs()) == len(SIZES), "both jobs are followed")
        with Maps(FOLDER) as maps:
            ids = [job.id for job in backend.jobs()]
            wait_for(
                lambda: all((each := maps.burst(job)) and each.number > 3 for job in ids),
                "bursts of both",
            )
            wait_for(lambda: {maps.level(job) for job in ids} <= set(range(LEVELS - 1)), "levels")
        before = sent_by_level(network)
        wait_for(lambda: sent_by_level(network)[0] > before[0] + 200_000, "the best level is used")
        said = running.stop()
        assert running.process.returncode == 0, said
        assert "priorities" not in said
        assert not FOLDER.exists()
