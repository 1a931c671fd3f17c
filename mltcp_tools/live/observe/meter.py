# SPDX-License-Identifier: BSD-2-Clause
"""Reads how far connections have come, in whichever network namespaces they are."""

from __future__ import annotations

import socket
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence

from mltcp_tools.kernel.host.closing import Closing
from mltcp_tools.kernel.host.diag import SocketProgress, progress
from mltcp_tools.live.attach.sockets import Socket, diag_socket
from mltcp_tools.live.observe.iteration_detector import Sample

SAMPLED = 32
"""Connections of a job, the busiest, that are looked at all the time, at 20 µs each."""


class Meter(Closing):
    """A sock_diag socket for each network namespace that is asked for. A context manager."""

    def __init__(self) -> None:
        self._diags: dict[int, socket.socket] = {}

    def read(self, sockets: Iterable[Socket]) -> dict[int, SocketProgress]:
        """Return their progress by cookie; those that have closed are left out."""
        by_netns = defaultdict(list)
        for each in sockets:
            by_netns[each.netns].append(each)
        found: dict[int, SocketProgress] = {}
        for inode, group in by_netns.items():
            if inode not in self._diags:
                try:
                    self._diags[inode] = diag_socket(group[0].process)
                except (FileNotFoundError, ProcessLookupError):  # it has ended
                    continue
            found |= progress(self._diags[inode], group)
        return found

    def close(self) -> None:
        """Close them; closing twice is fine."""
        for each in self._diags.values():
            each.close()
        self._diags.clear()


class Watcher:
    """Looks at a job's connections again and again, and remembers what those that closed had."""

    def __init__(self, sockets: Sequence[Socket], meter: Meter) -> None:
        busiest = sorted(sockets, key=lambda each: -(each.bytes_sent + each.bytes_received))
        self.sockets = busiest[:SAMPLED]
        self._meter = meter
        self._latest: dict[int, SocketProgress] = {}
        self.open = len(self.sockets)

    def sample(self) -> tuple[float, dict[int, SocketProgress]]:
        """The time (CLOCK_MONOTONIC) and how far each has come."""
        at_s = time.monotonic()
        found = self._meter.read(self.sockets)
        self.open = len(found)
        self._latest |= found
        return at_s, dict(self._latest)

    def choices(self) -> list[frozenset[int]]:
        """Sets of connections, by cookie, of which one may show the job's iterations: all, those of
        each process, and single ones."""
        cookies = [each.cookie for each in self.sockets]
        by_process = defaultdict(set)
        for each in self.sockets:
            by_process[each.process.pid].add(each.cookie)
        found = [frozenset(cookies), *map(frozenset, by_process.values())]
        found += [frozenset([each]) for each in cookies[:_SINGLE]]
        return list(dict.fromkeys(found))


_SINGLE = 4


def sample_of(at_s: float, found: dict[int, SocketProgress], chosen: Iterable[int]) -> Sample:
    """Return the look at some of the connections."""
    own = [found[cookie] for cookie in chosen if cookie in found]
    return Sample(
        at_s,
        sum(each.acknowledged + each.received for each in own),
        min((each.quiet_s for each in own), default=0.0),
    )
