"""The machines of a run across machines, and the agents that ssh starts there."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mltcp_tools.errors import HostError, MltcpError

END_S = 15.0
"""How long an agent has to write what it measured, and to end."""

_CLOCK_EXCHANGES = 10


@dataclass(frozen=True)
class Machines:
    """The machines of a run, as `ssh` knows them; `address`: the receiver's for the jobs.

    `ssh` is the command that reaches a machine, followed by its name and by what to run there;
    `mltcp` is how the tool is called there.
    """

    senders: Sequence[str]
    receiver: str
    address: str
    ssh: Sequence[str]
    mltcp: Sequence[str]


class Agent:
    """The agent on one machine, through ssh."""

    def __init__(self, host: str, machines: Machines) -> None:
        self.host = host
        self.clock_offset = 0.0  # its CLOCK_MONOTONIC less ours, seconds
        self.ended = False
        self._buffer = b""
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            self._process = subprocess.Popen(
                [*machines.ssh, host, *machines.mltcp, "testbed", "agent"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                start_new_session=True,  # Ctrl-C on the terminal is for the run to handle
            )
        except FileNotFoundError:
            self._stderr.close()
            raise HostError(f"The command {machines.ssh[0]} is missing.") from None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout

    def fileno(self) -> int:
        """Readable when the agent has said something, or ended."""
        return self._stdout.fileno()

    def send(self, event: str, **content: Any) -> None:
        """Send a message; an agent that is gone is noticed when it is listened to."""
        with contextlib.suppress(BrokenPipeError):
            self._stdin.write(json.dumps({"event": event} | content).encode() + b"\n")
            self._stdin.flush()

    def receive(self) -> list[dict[str, Any]]:
        """The messages that are complete after reading once. Raises MltcpError at the end."""
        data = os.read(self.fileno(), 1 << 20)
        if not data:
            self.ended = True
            raise MltcpError(f"The agent on {self.host} ended: {self._complaint()}")
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        try:
            return [dict(json.loads(line)) for line in lines]
        except ValueError:
            raise MltcpError(f"{self.host} answered nonsense: {lines[0][:100]!r}.") from None

    def set_clock(self) -> float:
        """Measure the offset of its clock; half of the quickest round trip is how sure that is."""
        best = float("inf")
        for _ in range(_CLOCK_EXCHANGES):
            sent = time.monotonic()
            self.send("clock")
            while not (messages := self.receive()):
                pass
            received = time.monotonic()
            if received - sent < best:
                best = received - sent
                self.clock_offset = messages[0]["now"] - (sent + received) / 2
        return best / 2

    def end(self) -> None:
        """Tell the agent to end, by closing its stdin."""
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()

    def close(self) -> str:
        """Wait until the agent has ended, and return what it said on stderr in a good end."""
        self.end()
        self._stdout.close()
        try:
            code = self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        said = "" if code else self._said()
        self._stderr.close()
        return said

    def _said(self) -> str:
        self._stderr.seek(0)
        return self._stderr.read().decode(errors="replace").strip()

    def _complaint(self) -> str:
        code = self._process.wait(END_S)
        reason = self._said().rpartition("mltcp: error: ")[2].splitlines()
        return reason[-1].strip() if reason else f"exit code {code}, without a word."
