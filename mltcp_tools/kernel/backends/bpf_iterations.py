# SPDX-License-Identifier: BSD-2-Clause
"""The stream of iterations that the eBPF programs report."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mltcp_tools.base.errors import MltcpError
from mltcp_tools.kernel.backends import checks, records
from mltcp_tools.kernel.backends.base import IterationEvent, IterationStream
from mltcp_tools.kernel.backends.pins import PIN_ROOT, Home, pinned, read_counter
from mltcp_tools.kernel.host.leases import leases
from mltcp_tools.kernel.host.locks import exclusive
from mltcp_tools.kernel.native import requirements
from mltcp_tools.kernel.native.bpf_maps import RingReader
from mltcp_tools.kernel.native.uapi import unpack

_SPARE = 20
"""Walks through all flows for a cookie take at most a twentieth of a CPU's time."""


class BpfIterations(IterationStream):
    """The ring buffer of finished iterations.

    backend: the name of the one whose they are. cookies: gives those of all flows, as
    records.cookies.
    """

    def __init__(self, backend: str, cookies: Callable[[], Mapping[bytes, int]]) -> None:
        requirements.require_bpf(PIN_ROOT.parent)
        self._cookies = cookies
        self._netns = Home.here().netns
        users = checks.few(leases(backend)) or "a process without a lease"
        self._lock = exclusive(
            "iterations", f"Somebody else reads the iterations ({users}); stop that first."
        )
        self._lock.__enter__()
        self._ring: RingReader | None = None
        self._walk_at_s = 0.0
        try:
            with pinned("mltcp_events") as ring:
                self._id = ring.id
                self._ring = RingReader(ring)
            while self._ring.poll(0):
                pass  # what came before we were here
            self._dropped_before = self._dropped_total()
        except BaseException:
            self.close()
            raise

    def _dropped_total(self) -> int:
        with pinned("mltcp_dropped") as dropped:
            return read_counter(dropped)

    def poll(self, timeout_s: float) -> list[IterationEvent]:
        if self._ring is None:
            return []
        samples = [(unpack("mltcp_event", each), each) for each in self._ring.poll(timeout_s)]
        own = [(event, data) for event, data in samples if event.netns == self._netns]
        if not all(event.cookie for event, _ in own):
            self._add_cookies(own)
        events = [records.iteration(event) for event, _ in own]
        with pinned("mltcp_events") as ring:
            if ring.id != self._id and not events:
                raise MltcpError("The programs that report iterations were replaced.")
        self.dropped = self._dropped_total() - self._dropped_before
        return events

    def _add_cookies(self, events: Sequence[tuple[Any, bytes]]) -> None:
        """Give these, structs with their bytes, the cookies that they lack.

        A socket that nobody has asked for its cookie has none, and the programs can't make one.
        Reading the flows does. One that has closed already stays without, 0, and so do more than
        there is time for.
        """
        if time.monotonic() < self._walk_at_s:
            return
        begin_s = time.thread_time()
        known = self._cookies()
        for event, data in events:
            event.cookie = event.cookie or known.get(records.ends_of_event(data), 0)
        self._walk_at_s = time.monotonic() + _SPARE * (time.thread_time() - begin_s)

    def close(self) -> None:
        if self._ring:
            self._ring.close()
            self._ring = None
        self._lock.__exit__(None, None, None)
