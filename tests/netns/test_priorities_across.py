# SPDX-License-Identifier: BSD-2-Clause
"""A controller for several hosts: one order for the jobs of all, and none when it dies.

The hosts are folders of maps on this one, reached by a script in place of ssh.
"""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.waiting import wait_for

from mltcp_tools.kernel.native.bpf_maps import BpfMap
from mltcp_tools.kernel.native.bpf_object import BpfObject
from mltcp_tools.kernel.native.objects import build_object
from mltcp_tools.live.priorities.maps import KnownJob, Maps

ALIVE_NS = 500_000_000
"""MLTCP_PRIORITY_ALIVE_NS of bpf/priority.bpf.h."""

pytestmark = pytest.mark.bpf


class Host:
    """The maps of one, and what its programs would write there."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack) -> None:
        self.maps = stack.enter_context(Maps(folder))
        self._bursts = stack.enter_context(BpfMap.pinned(folder / "priority_bursts"))
        self._alive = stack.enter_context(BpfMap.pinned(folder / "priority_alive"))

    def begin(self, job: int, size: int, ports: tuple[int, ...] = (0,)) -> None:
        """A job's burst, which goes on until the test is over."""
        now = time.monotonic_ns()
        self.maps.set_job(job, KnownJob(size, 10**12, ports), [])
        self._bursts.set(struct.pack("=I", job), struct.pack("=QQQQII", 0, now, now, 0, 1, 1))

    def alike(self) -> bool:
        """Return whether the programs treat all jobs alike."""
        value = self._alive.get(bytes(4))
        assert value is not None
        return time.monotonic_ns() - int.from_bytes(value, sys.byteorder) > ALIVE_NS


def unpin(folder: Path) -> None:
    for pin in folder.iterdir():
        pin.unlink()


@contextlib.contextmanager
def hosts(tmp_path: Path, *more: str) -> Iterator[tuple[dict[str, Host], subprocess.Popen[bytes]]]:
    """Two hosts, and the controller of both."""
    prefix = f"/sys/fs/bpf/mltcp-test-{uuid.uuid4().hex[:8]}-"
    with contextlib.ExitStack() as stack:
        found = {}
        for name in ("one", "two"):
            folder = Path(prefix + name)
            folder.mkdir()
            stack.callback(folder.rmdir)
            stack.callback(unpin, folder)
            stack.enter_context(BpfObject(build_object("priority"), folder))
            found[name] = Host(folder, stack)
        reach = tmp_path / "reach"
        reach.write_text('#!/bin/bash\nname=$1\nshift\nexec "${@/HOST/$name}"\n')
        reach.chmod(0o755)
        tool = f"{sys.executable} -m mltcp_tools.cli.main"
        command = [*tool.split(), "lab", "priorities", f"{prefix}HOST", "--host=one,two", *more]
        reached = {"MLTCP_SSH": str(reach), "MLTCP_REMOTE": tool}
        controller = subprocess.Popen(command, env=os.environ | reached)
        try:
            yield found, controller
        finally:
            if controller.poll() is None:
                os.kill(controller.pid, signal.SIGCONT)
                controller.terminate()
            controller.wait(60)


def last(one: Maps, two: Maps) -> bool:
    """Return whether job 3 is behind job 1, on both hosts alike."""
    first, third = one.level(1), one.level(3)
    return None not in (first, third) and first < third == two.level(3)  # type: ignore[operator]


def test_each_host_has_jobs_of_its_own(tmp_path: Path) -> None:
    """The jobs that both hosts call 1 are two."""
    with hosts(tmp_path) as (found, _):
        one, two = found["one"].maps, found["two"].maps
        found["one"].begin(1, 5_000_000)
        found["two"].begin(1, 1_000_000)
        wait_for(lambda: (one.level(1), two.level(1)) == (1, 0), "the shorter burst to be first")


def test_jobs_of_all_hosts_have_one_order(tmp_path: Path) -> None:
    with hosts(tmp_path, "--same-ids") as (found, controller):
        one, two = found["one"].maps, found["two"].maps
        found["one"].begin(1, 5_000_000)
        found["two"].begin(2, 1_000_000)
        wait_for(lambda: (one.level(1), two.level(2)) == (1, 0), "the shorter burst to be first")
        # A third one, for which both send, is the longest with what it has on both.
        found["one"].begin(3, 3_000_000)
        found["two"].begin(3, 3_000_000)
        wait_for(lambda: last(one, two), "both to be last")
        assert two.level(2) == 0
        assert one.level(2) is two.level(1) is None
        controller.terminate()
        assert controller.wait(60) == 0
        wait_for(lambda: all(host.alike() for host in found.values()), "all to be alike")


def test_a_controller_that_hangs_leaves_all_alike(tmp_path: Path) -> None:
    """The order is out of date half a second after it was said."""
    with hosts(tmp_path) as (found, controller):
        found["one"].begin(1, 5_000_000)
        found["two"].begin(2, 1_000_000)
        wait_for(lambda: not any(host.alike() for host in found.values()), "the controller")
        wait_for(lambda: found["one"].maps.level(1) == 1, "the order")
        controller.send_signal(signal.SIGSTOP)
        wait_for(lambda: all(host.alike() for host in found.values()), "all to be alike")
