"""The stream of iterations that the eBPF programs report."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace

from mltcp_tools.errors import MltcpError
from mltcp_tools.kernel.backends import checks, records
from mltcp_tools.kernel.backends.base import Backend, Flow, IterationEvent, IterationStream
from mltcp_tools.kernel.backends.pins import PIN_ROOT, Home, map_key, pinned
from mltcp_tools.kernel.host import facts
from mltcp_tools.kernel.host.leases import leases
from mltcp_tools.kernel.host.locks import exclusive
from mltcp_tools.kernel.native.bpf_maps import RingReader
from mltcp_tools.kernel.native.uapi import unpack


def _ends(of: Flow | IterationEvent) -> tuple[str, int, str, int]:
    return of.local_addr, of.local_port, of.remote_addr, of.remote_port


class BpfIterations(IterationStream):
    """The ring buffer of finished iterations."""

    def __init__(self, backend: Backend) -> None:
        facts.require_bpf(PIN_ROOT.parent)
        self._backend = backend
        self._netns = Home.here().netns
        users = checks.few(leases(backend.name)) or "a process without a lease"
        self._lock = exclusive(
            "iterations", f"Somebody else reads the iterations ({users}); stop that first."
        )
        self._lock.__enter__()
        self._ring: RingReader | None = None
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
            value = dropped.get(map_key(0))
        return struct.unpack("=Q", value)[0] if value else 0

    def poll(self, timeout_s: float) -> list[IterationEvent]:
        if self._ring is None:
            return []
        samples = [unpack("mltcp_event", sample) for sample in self._ring.poll(timeout_s)]
        events = [records.iteration(event) for event in samples if event.netns == self._netns]
        if not all(event.cookie for event in events):
            events = self._with_cookies(events)
        with pinned("mltcp_events") as ring:
            if ring.id != self._id and not events:
                raise MltcpError("The programs that report iterations were replaced.")
        self.dropped = self._dropped_total() - self._dropped_before
        return events

    def _with_cookies(self, events: Sequence[IterationEvent]) -> list[IterationEvent]:
        """A socket that nobody has asked for its cookie has none, and the programs can't give one.

        Reading the flows does. One that has closed already stays without: 0.
        """
        known = {_ends(flow): flow.cookie for flow in self._backend.flows()}
        return [
            event if event.cookie else replace(event, cookie=known.get(_ends(event), 0))
            for event in events
        ]

    def close(self) -> None:
        if self._ring:
            self._ring.close()
            self._ring = None
        self._lock.__exit__(None, None, None)
