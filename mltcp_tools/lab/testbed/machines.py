# SPDX-License-Identifier: BSD-2-Clause
"""The machines of a run across machines, and the agents that ssh starts there."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mltcp_tools.base.errors import MltcpError
from mltcp_tools.kernel.host.peers import PeerProgram
from mltcp_tools.kernel.host.programs import wait_or_kill

END_S = 15.0
"""The time that an agent has to write what it measured, and to end."""

_CLOCK_EXCHANGES = 10


@dataclass(frozen=True)
class Machines:
    """The machines of a run, as ssh knows them; `address`: the receiver's for the jobs.

    command: makes the command line that starts the agent on a machine.
    """

    senders: Sequence[str]
    receiver: str
    address: str
    command: Callable[[str], list[str]]


class Agent:
    """The agent on one machine, through ssh."""

    def __init__(self, host: str, machines: Machines) -> None:
        self.host = host
        self.clock_offset = 0.0  # its CLOCK_MONOTONIC less ours, seconds
        self.ended = False
        self._peer = PeerProgram(machines.command(host), quiet=True)

    def fileno(self) -> int:
        """Readable when the agent has said something, or ended."""
        return self._peer.fileno()

    def send(self, event: str, **content: Any) -> None:
        """Send a message; an agent that is gone is noticed when it is listened to."""
        self._peer.send({"event": event} | content)

    def receive(self) -> list[dict[str, Any]]:
        """The messages that are complete after reading once. Raises MltcpError at the end."""
        try:
            messages = self._peer.read()
        except ValueError as error:
            raise MltcpError(f"{self.host} sent an invalid answer: {error}.") from None
        if messages is None:
            self.ended = True
            raise MltcpError(f"The agent on {self.host} ended: {self._complaint()}")
        return messages

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
        self._peer.end()

    def close(self) -> str:
        """Wait until the agent has ended, and return what it said on stderr in a good end."""
        return "" if self._peer.close(END_S) else self._peer.words()

    def _complaint(self) -> str:
        code = wait_or_kill(self._peer.process, END_S)
        return self._peer.complaint() or f"exit code {code}, without a word."
