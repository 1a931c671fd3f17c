# SPDX-License-Identifier: BSD-2-Clause
"""The maps that the controller and bpf/priority.bpf.c share, below a folder of the BPF file system.

Ids of jobs are from 1, levels from 0, the best; times are nanoseconds of CLOCK_MONOTONIC.
"""

from __future__ import annotations

import contextlib
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mltcp_tools.base.errors import UsageError
from mltcp_tools.kernel.native.bpf_maps import BpfMap, RingReader
from mltcp_tools.kernel.native.libbpf import BpfError

_U32, _U64 = struct.Struct("=I"), struct.Struct("=Q")
JOB = struct.Struct("=QQQ")  # struct mltcp_priority_job
BURST = struct.Struct("=QQQQII")  # struct mltcp_priority_burst


@dataclass(frozen=True)
class KnownJob:
    """The knowledge of a job. bytes: of a burst, 0 for as many as in the one before. gap_ns: the
    pause that ends a burst. ports: numbers of the bottlenecks that it crosses, below 64."""

    bytes: int
    gap_ns: int
    ports: tuple[int, ...] = (0,)


@dataclass(frozen=True)
class PriorityBurst:
    """The progress of a job; see struct mltcp_priority_burst."""

    sent: int
    began_ns: int
    last_ns: int
    before: int
    number: int
    active: bool


class Maps:
    """The maps in `folder`. A context manager; UsageError where there are none."""

    def __init__(self, folder: Path) -> None:
        self._stack = contextlib.ExitStack()
        try:
            for name in ("sockets", "jobs", "bursts", "levels", "alive", "events"):
                opened = BpfMap.pinned(folder / f"priority_{name}")
                setattr(self, f"_{name}", self._stack.enter_context(opened))
        except BpfError as error:
            self._stack.close()
            raise UsageError(
                f"{folder} has no maps of priorities ({error}); name the folder where they are"
                " pinned."
            ) from error

    _sockets: BpfMap
    _jobs: BpfMap
    _bursts: BpfMap
    _levels: BpfMap
    _alive: BpfMap
    _events: BpfMap

    def __enter__(self) -> Maps:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def set_job(self, job: int, known: KnownJob, cookies: Sequence[int]) -> None:
        """Have these sockets, by their cookies, send for a job."""
        ports = sum(1 << port for port in known.ports)
        self._jobs.set(_U32.pack(job), JOB.pack(known.bytes, known.gap_ns, ports))
        for cookie in cookies:
            self._sockets.set(_U64.pack(cookie), _U32.pack(job))

    def forget_socket(self, cookie: int) -> None:
        """Have a socket send for no job."""
        self._sockets.delete(_U64.pack(cookie))

    def forget_bursts(self, job: int) -> None:
        """Have a job begin as one that hasn't sent anything."""
        self._bursts.delete(_U32.pack(job))

    def forget_job(self, job: int) -> None:
        """Forget a job, whose sockets send for others or for none by now."""
        self._jobs.delete(_U32.pack(job))
        self._levels.delete(_U32.pack(job))
        self.forget_bursts(job)

    def jobs(self) -> dict[int, KnownJob]:
        """All jobs."""
        found = {}
        for key in self._jobs.all_keys():
            if (value := self._jobs.get(key)) is not None:
                size, gap_ns, mask = JOB.unpack(value)
                ports = tuple(port for port in range(64) if mask >> port & 1)
                found[_U32.unpack(key)[0]] = KnownJob(size, gap_ns, ports)
        return found

    def burst(self, job: int) -> PriorityBurst | None:
        """Return the progress of a job, None before its first packet."""
        value = self._bursts.get(_U32.pack(job))
        if value is None:
            return None
        sent, began_ns, last_ns, before, number, active = BURST.unpack(value)
        return PriorityBurst(sent, began_ns, last_ns, before, number, bool(active))

    def set_level(self, job: int, level: int) -> None:
        """Give a job a level, unless it has been forgotten."""
        key = _U32.pack(job)
        self._levels.set(key, _U32.pack(level))
        # It may have been forgotten just now, and its level before this one was written.
        if self._jobs.get(key) is None:
            self._levels.delete(key)

    def level(self, job: int) -> int | None:
        """A job's level, None before it was given one."""
        value = self._levels.get(_U32.pack(job))
        return None if value is None else int(_U32.unpack(value)[0])

    def live(self) -> None:
        """Say that the controller lives. Levels hold for half a second from then on."""
        self._alive.set(_U32.pack(0), _U64.pack(time.monotonic_ns()))

    def die(self) -> None:
        """Say that no controller lives any more."""
        self._alive.set(_U32.pack(0), _U64.pack(0))

    def reader(self) -> RingReader:
        """Reads the events; for one reader at a time."""
        return RingReader(self._events)
