# SPDX-License-Identifier: BSD-2-Clause
"""Processes that train in all but name (support/training_process.py), and an agent for them."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from support import procfs
from support.waiting import PATIENCE_S, wait_for

from mltcp_tools.base.errors import BusyError
from mltcp_tools.kernel.host.locks import exclusive
from mltcp_tools.live.attach.state import LOCK
from mltcp_tools.live.observe.follower_state import forget_killed

SCRIPT = Path(__file__).parents[1] / "support" / "training_process.py"


class Training:
    """One such process. `pid`: as the host sees it. `fds`: of the connections it began with."""

    def __init__(
        self, mark: str, *arguments: str, through: Sequence[str] = (), **environment: str
    ) -> None:
        self.process = subprocess.Popen(
            [*through, sys.executable, SCRIPT, mark, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | environment,
        )
        started = self.answer()
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
        """Send it a command (support/training_process.py); its answer."""
        self.tell(*command)
        return self.answer()

    def tell(self, *command: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(map(str, command)) + "\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            assert selector.select(PATIENCE_S), "the training process doesn't answer"
        line = self.process.stdout.readline()
        assert line, f"the training process ended with {self.process.wait()}"
        return json.loads(line)

    def stop(self) -> float:
        """End the iterations that it was told of; the seconds that they took."""
        self.tell("stop")
        return float(self.answer())

    def ccs(self) -> list[str]:
        """The congestion control of each of its connections, by its own account."""
        names: list[str] = self.ask("names")
        return names

    def end(self) -> None:
        if self.process.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
        self.process.communicate()


def _descendants(pid: int) -> Iterator[int]:
    for child in procfs.children(pid):
        yield child
        yield from _descendants(child)


@contextlib.contextmanager
def training(
    mark: str, *arguments: str, through: Sequence[str] = (), **environment: str
) -> Iterator[Training]:
    """Start one, told from others by `mark` in its command line; end it.

    through: what comes before its command, such as `ip netns exec NAME`.
    """
    started = Training(mark, *arguments, through=through, **environment)
    try:
        yield started
    finally:
        started.end()


def pause(process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    """Stop it as it stands, though not while it holds the lock that attaching takes."""
    while True:
        process.send_signal(signal.SIGSTOP)
        wait_for(lambda: procfs.state(process.pid) == "T", "its stop")
        with contextlib.suppress(BusyError), exclusive(LOCK, "it holds it"):
            return
        process.send_signal(signal.SIGCONT)
        time.sleep(0.1)


class Agent:
    """`mltcp agent` as a process. `said()`: what it wrote so far. through: as of `training`."""

    def __init__(
        self,
        folder: Path,
        rules: str,
        through: Sequence[str] = (),
        **environment: str,
    ) -> None:
        self.config = folder / "agent.yaml"
        self.socket = folder / "agent.sock"
        self._log = folder / "agent.log"
        self.write(rules)
        with open(self._log, "w") as log:
            command = [sys.executable, "-m", "mltcp_tools.cli.main", "agent"]
            self.process = subprocess.Popen(
                [*through, *command, "--config", self.config],
                stderr=log,
                env=os.environ | {"MLTCP_AGENT_SOCKET": str(self.socket)} | environment,
            )

    def write(self, rules: str) -> None:
        self.config.write_text(rules)
        self.config.chmod(0o644)

    def said(self) -> str:
        return self._log.read_text()

    def wait_for(self, sentence: str) -> None:
        def said_or_ended() -> bool:
            assert self.process.poll() is None or sentence in self.said(), self.said()
            return sentence in self.said()

        wait_for(said_or_ended, lambda: f"{sentence!r} in {self.said()}")

    def stop(self, number: int = 15) -> str:
        """Send the signal and wait for the end; what it wrote."""
        self.process.send_signal(number)
        self.process.wait(PATIENCE_S)
        return self.said()


@contextlib.contextmanager
def agent(folder: Path, rules: str, **environment: str) -> Iterator[Agent]:
    """Start an agent with these rules, wait until it is ready; kill it, and what it leaves behind
    of having run.
    """
    started = Agent(folder, rules, **environment)
    try:
        started.wait_for("Following")
        yield started
    finally:
        started.process.kill()
        started.process.wait()
        forget_killed()
