# SPDX-License-Identifier: BSD-2-Clause
"""Noticing new connections of processes: the follower is woken, or looks often."""

from __future__ import annotations

import struct
import time
from abc import abstractmethod
from collections.abc import Callable
from contextlib import ExitStack

from mltcp_tools.base.errors import HostError, UnknownError
from mltcp_tools.kernel.host.closing import Closing
from mltcp_tools.kernel.native import requirements
from mltcp_tools.kernel.native.bpf_maps import RingReader
from mltcp_tools.kernel.native.bpf_object import BpfObject
from mltcp_tools.kernel.native.objects import build_object
from mltcp_tools.live.agent.rules import AUTO

POLL_S = 0.05
"""Polling looks so often: with one scan in between, a socket is switched within 100 ms."""

FOLLOW_UPS_S = (0.0, 0.02, 0.06, 0.14)
"""After a wake-up it is looked at once and again: a connection is established before the program
has accepted it, and only then can it be reached."""

_BREATH_S = 0.02
"""Between two looks at least, so that a host with thousands of new connections a second (none of
them ours, as a rule) doesn't keep the follower busy."""

_FIRST = _ASLEEP = struct.pack("=I", 0)


class Wakeups(Closing):
    """A source of wake-ups, a context manager. name: what people call it. why: for what reason."""

    name: str
    why: str

    @abstractmethod
    def fileno(self) -> int:
        """A descriptor that is readable after a wake-up; -1 where there is none to wait for."""

    @abstractmethod
    def scan_times(self, now_s: float) -> list[float]:
        """Called when it was woken, and at the start: when to look at the sockets."""

    @abstractmethod
    def rearm(self) -> None:
        """Called right before it is looked at the sockets: what comes from here on wakes again."""


class Polling(Wakeups):
    """Looks every POLL_S seconds, and nothing wakes it."""

    name = "polling"

    def __init__(self, why: str) -> None:
        self.why = why

    def fileno(self) -> int:
        return -1

    def scan_times(self, now_s: float) -> list[float]:
        return [now_s + POLL_S]

    def rearm(self) -> None:
        pass

    def close(self) -> None:
        pass


class Tracepoint(Wakeups):
    """Woken by the tracepoint sock:inet_sock_set_state (bpf/follow.bpf.c).

    Raises HostError where the kernel doesn't take the program.
    """

    name = "tracepoint"
    why = "sock:inet_sock_set_state"

    def __init__(self) -> None:
        requirements.require_bpf()
        self._looked_s = 0.0
        with ExitStack() as stack:
            program = stack.enter_context(BpfObject(build_object("follow"), None))
            self._awake = stack.enter_context(program.map("mltcp_awake"))
            with program.map("mltcp_woken") as woken:
                self._ring = stack.enter_context(RingReader(woken))
            program.attach_to_tracepoint("wake", "inet_sock_set_state")
            self._stack = stack.pop_all()

    def fileno(self) -> int:
        return self._ring.fileno()

    def scan_times(self, now_s: float) -> list[float]:
        self._ring.poll(0)
        begin_s = max(now_s, self._looked_s + _BREATH_S)
        return [begin_s + delay for delay in FOLLOW_UPS_S]

    def rearm(self) -> None:
        self._looked_s = time.monotonic()
        self._awake.set(_FIRST, _ASLEEP)

    def close(self) -> None:
        self._stack.close()


def open_wakeups(method: str, say: Callable[[str], None]) -> Wakeups:
    """The source of that name (rules.METHODS), and a sentence on which it is and why.

    Raises HostError where the tracepoint was asked for by name and isn't available.
    """
    try:
        found: Wakeups = Polling("as asked for") if method == "polling" else Tracepoint()
    except (HostError, UnknownError) as error:
        if method != AUTO:
            raise
        found = Polling(f"the tracepoint isn't available: {error}")
    say(f"New connections are noticed by {found.name} ({found.why}).")
    return found
