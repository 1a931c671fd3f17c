# SPDX-License-Identifier: BSD-2-Clause
"""An elastic job under an agent: torchrun starts its ranks again after one was killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from netns.trainings import agent, pause
from support.waiting import wait_for
from train.jobs import SCRIPTS
from train.mltcp import loaded, mltcp_json

from mltcp_tools.kernel.host import cgroups

pytestmark = pytest.mark.bpf


@contextlib.contextmanager
def elastic(cgroup: Path) -> Iterator[subprocess.Popen[str]]:
    """Two ranks on this host, which torchrun starts again, in the cgroup."""
    torchrun = Path(sys.executable).with_name("torchrun")
    rank = f"exec {sys.executable} {SCRIPTS}/ddp.py $RANK $WORLD_SIZE 100000 128 0.1"
    words = [
        "--standalone",
        "--nproc-per-node=2",
        "--max-restarts=9",
        "--monitor-interval=0.2",
        "--no-python",
    ]
    enter = f'echo $$ >{cgroup}/cgroup.procs; exec "$@"'
    process = subprocess.Popen(
        ["sh", "-c", enter, "sh", torchrun, *words, "sh", "-c", rank],
        env=os.environ | {"GLOO_SOCKET_IFNAME": "lo"},
        stdout=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def ranks(process: subprocess.Popen[str], count: int = 2) -> dict[int, set[str]]:
    """The congestion controls of each rank's Gloo connections, once so many ranks have some."""
    found = {
        each["pid"]: {
            sock["congestion_control"] for sock in each["sockets"] if sock["kind"] == "gloo"
        }
        for each in mltcp_json("connections", f"tree:{process.pid}")
        if each["pid"] != process.pid
    }
    found = {pid: names for pid, names in found.items() if names}
    return found if len(found) == count else {}


def test_ranks_started_again_are_the_same_job_from_their_start(tmp_path: Path) -> None:
    cgroup = cgroups.root() / f"mltcp-elastic-{uuid.uuid4().hex[:8]}"
    cgroup.mkdir()
    rules = f"rules:\n  - {{job: elastic, cgroup: {cgroup.name}, kinds: all}}\n"

    def watched(more_than: int) -> dict[str, Any]:
        """The job as the agent shows it, once it has more iterations."""
        rows = mltcp_json("watch", "--once", "--wait", "0.1s")
        return next((each for each in rows if each["iterations"] > more_than), {})

    try:
        with loaded(), agent(tmp_path, rules) as running, elastic(cgroup) as process:
            running.wait_for("attached before their first data")
            first = wait_for(lambda: ranks(process), "two ranks")
            before = wait_for(lambda: watched(5), "iterations")
            pause(running.process)  # nobody looks now
            os.kill(min(first), signal.SIGKILL)
            second = wait_for(
                lambda: not (found := ranks(process)).keys() & first.keys() and found, "new ranks"
            )
            assert set().union(*second.values()) == {"mltcp"}
            running.process.send_signal(signal.SIGCONT)
            after = wait_for(lambda: watched(before["iterations"] + 5), "the same history")
            assert [after["id"], after["name"]] == [before["id"], "elastic"]
            assert after["first_s"] == before["first_s"]
            assert "has ended" not in running.said()
    finally:
        cgroups.remove(cgroup.name)
