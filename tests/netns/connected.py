# SPDX-License-Identifier: BSD-2-Clause
"""Processes with TCP connections that nobody accepts, which tests attach to."""

from __future__ import annotations

import contextlib
import os
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

from netns.trainings import Training, training
from pyroute2 import netns

from mltcp_tools.kernel.backends.base import Backend, Job
from mltcp_tools.live.attach.access import Change
from mltcp_tools.live.attach.sockets import Socket
from mltcp_tools.live.attach.state import StateFiles
from mltcp_tools.live.attach.switch import Wanted, attach_all

FIRST_CC = "reno"
"""The connections' congestion control before anything is attached."""


@contextlib.contextmanager
def holder(
    count: int = 3,
    address: str = "127.0.0.1",
    through: Sequence[str] = (),
    maps: Sequence[Path] = (),
    **environment: str,
) -> Iterator[Training]:
    """A process with so many of them, over loopback. maps: files that it has mapped."""
    words = [f"connections={count}", f"address={address}", *(f"map={each}" for each in maps)]
    with training("holder", f"cc={FIRST_CC}", *words, through=through, **environment) as found:
        yield found


def with_pid(pid: int) -> Training:
    """A new process of two connections that gets that pid, which is free."""
    for _ in range(200):
        Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1))
        found = Training("holder", f"cc={FIRST_CC}", "connections=2")
        if found.pid == pid:
            return found
        found.end()  # somebody else on this host was faster
    raise AssertionError(f"no process got the pid {pid}")


def attach(
    sockets: Sequence[Socket],
    job: Job,
    congestion_control: str,
    backend: Backend,
    dry_run: bool = False,
    files: StateFiles | None = None,
    move: bool | None = False,
) -> list[Change]:
    """As attach_all, with one job."""
    wanted = Wanted(sockets, lambda _: job, congestion_control)
    return attach_all([wanted], backend, dry_run, files, move)[0].get()[1]


@contextlib.contextmanager
def namespace() -> Iterator[str]:
    """A network namespace with nothing but loopback, by name."""
    name = f"mltcp-test-{os.getpid()}-{uuid.uuid4().hex[:4]}"
    netns.create(name)
    try:
        subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
        yield name
    finally:
        netns.remove(name)
