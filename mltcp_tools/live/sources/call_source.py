# SPDX-License-Identifier: BSD-2-Clause
"""Iterations of processes, from their calls of a library, which probes see."""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from typing import Any, ClassVar

from mltcp_tools.kernel.host.closing import Closing
from mltcp_tools.live.sources.calls import CallLog, Iterations
from mltcp_tools.live.sources.metadata import Metadata
from mltcp_tools.live.sources.probes import Probes

_AT_ONCE = 20_000
"""Calls taken in one poll."""


class CallSource(Closing):
    """The calls of the processes that are watched. A context manager; for one thread.

    source: its name in Metadata. library: names of files with its functions. needs: functions of
    the program without which it tells nothing. lost: calls that came faster than they were read.
    """

    source: ClassVar[str]
    library: ClassVar[re.Pattern[str]]
    needs: ClassVar[frozenset[str]]

    def __init__(self, probes: Probes) -> None:
        self._probes = probes
        self._logs: dict[int, CallLog] = {}
        table = probes.bpf[b"calls"]
        table.open_ring_buffer(lambda _, data, size: self._take(table.event(data)))
        self._left = 0

    @abstractmethod
    def _receive(self, event: Any) -> None:
        """Take an event of the program's ring buffer."""

    @abstractmethod
    def _flow_share(self, pid: int, flows: int | None) -> float | None:
        """The share of the process's bytes that one flow sends; None where it isn't known."""

    def _take(self, event: Any) -> int:
        """Take an event from bcc; a negative answer ends the poll."""
        self._receive(event)
        self._left -= 1
        return 0 if self._left else -1

    @property
    def watched(self) -> frozenset[int]:
        """The processes whose calls are seen."""
        return frozenset(self._logs)

    @property
    def lost(self) -> int:
        return int(self._probes.bpf[b"lost"][0].value)

    def watch(self, pid: int) -> bool:
        """See the calls of a process from now on.

        False where it hasn't loaded such a library, or only one that lacks the functions. Watching
        twice is fine. Raises HostError where this user may not, MltcpError when the process is
        gone.
        """
        if not self.needs <= self._probes.attach(pid):
            self._probes.detach(pid)
            return False
        self._logs.setdefault(pid, CallLog())
        return True

    def forget(self, pid: int) -> None:
        """Stop watching; a process that isn't watched is no error."""
        self._probes.detach(pid)
        self._logs.pop(pid, None)

    def poll(self, timeout_s: float = 0.0) -> None:
        """Take the calls made since; wait up to timeout_s seconds for the first.

        At most _AT_ONCE, as a process may make them faster than they are read.
        """
        self._left = _AT_ONCE
        self._probes.bpf.ring_buffer_poll(round(timeout_s * 1000))

    def last_s(self, pid: int) -> float:
        """Return the process's last call (CLOCK_MONOTONIC), -inf where none was seen."""
        return self._logs[pid].last_s if pid in self._logs else -math.inf

    def iterations(self, pid: int) -> Iterations | None:
        """Return the iterations that the process's calls of late repeat; None where nothing."""
        return self._logs[pid].iterations() if pid in self._logs else None

    def metadata(self, pid: int, flows: int | None = None) -> Metadata | None:
        """Return the knowledge of the process's iterations, None without any.

        flows: how many sockets the process sends its data through, by which bytes are shared where
        the calls don't tell.
        """
        found = self.iterations(pid)
        return found.metadata(self.source, self._flow_share(pid, flows)) if found else None

    def close(self) -> None:
        """Take all probes off; closing twice is fine."""
        self._logs.clear()
        self._probes.close()
