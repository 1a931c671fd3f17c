# SPDX-License-Identifier: BSD-2-Clause
"""Processes with TCP connections that tests attach to (support/holding_process.py)."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pyroute2 import netns
from support import procfs
from support.waiting import PATIENCE_S, wait_for

SCRIPT = Path(__file__).parents[1] / "support" / "holding_process.py"


class Holder:
    """A process with connections. `pid`: as the host sees it. `fds`: of the connections."""

    def __init__(
        self,
        count: int = 3,
        address: str = "127.0.0.1",
        through: Sequence[str] = (),
        maps: Sequence[Path] = (),
        environment: dict[str, str] | None = None,
    ) -> None:
        script = [sys.executable, str(SCRIPT), str(count), address, *map(str, maps)]
        self.process = subprocess.Popen(
            [*through, *script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | (environment or {}),
        )
        started = self._answer()
        self.fds: list[int] = started["fds"]
        self.port: int = started["port"]
        self.pid = self._pid_here(started["pid"])

    def _pid_here(self, pid: int) -> int:
        """Of the script: the child of what it was started through, if that stays."""
        if self.process.pid == pid:
            return pid
        below = wait_for(lambda: list(_descendants(self.process.pid)), "the process in between")
        return below[-1] if below else self.process.pid

    def ask(self, *command: object) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(map(str, command)) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the process ended with {self.process.wait()}"
        return json.loads(line)

    def congestion_controls(self) -> list[str]:
        """Return what the open connections run, by their own account."""
        names: list[str] = self.ask("names")
        return names

    def end(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        self.process.wait(PATIENCE_S)


def with_pid(pid: int) -> Holder:
    """A new process that gets that pid, which is free."""
    for _ in range(200):
        Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1))
        found = Holder(2)
        if found.pid == pid:
            return found
        found.end()  # somebody else on this host was faster
    raise AssertionError(f"no process got the pid {pid}")


@contextlib.contextmanager
def holder(count: int = 3, address: str = "127.0.0.1", **options: Any) -> Iterator[Holder]:
    found = Holder(count, address, **options)
    try:
        yield found
    finally:
        found.end()


def _descendants(pid: int) -> Iterator[int]:
    for child in procfs.children(pid):
        yield child
        yield from _descendants(child)


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
