# SPDX-License-Identifier: BSD-2-Clause
"""Disturbance on this host: time stolen by its hypervisor, waiting for a CPU, late timers.

A thread sleeps PROBE_S over and over and notes how much later than asked for it woke up; ten times
a second it reads the kernel's own counters: stolen time (/proc/stat, proc(5)), the time during
which some task waited for a CPU (/proc/pressure/cpu, the kernel's Documentation/accounting/psi),
and how long the threads of the processes started by this one ran and waited
(/proc/PID/task/TID/schedstat, Documentation/scheduler/sched-stats). The watch takes 1 to 2 % of a
CPU.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

PROBE_S = 0.01
_PROBES_PER_SAMPLE = 10
_PROC = Path("/proc")


@dataclass(frozen=True)
class Second:
    """One second, or the rest of one, of what was watched.

    at: when it began, CLOCK_MONOTONIC seconds. length_s: its length, seconds. stolen: share of all
    CPUs' time that the hypervisor took. busiest: share of its time for which the busiest CPU was in
    use, which may be another one each tenth of a second. own: share that this process and its
    children used; others: that all other processes did; interrupts aren't counted in either.
    pressure: share of the time during which some task of the host waited for a CPU. queued: seconds
    per second that this process's children waited for a CPU, summed over them. late_s, latest_s:
    how late the probe's timers fired, on average and at worst, seconds. skipped: how many BPF
    programs the kernel skipped. None: the kernel doesn't tell.
    """

    at: float
    length_s: float
    stolen: float
    busiest: float | None
    own: float | None
    others: float | None
    pressure: float | None
    queued: float | None
    late_s: float
    latest_s: float
    skipped: int | None = None


@dataclass(frozen=True)
class HostSample:
    """Counters since the start of the watch, at one instant (CLOCK_MONOTONIC seconds).

    stolen, worked, ticks: of all CPUs, in ticks; worked by processes. each: of each CPU, ticks in
    use, and all. own_s: CPU time of this process and its children. own_s, pressure_s, queued_s,
    late_s: seconds. probes: how many timers fired. latest_s: the latest timer since the sample
    before, seconds. skipped: BPF programs, since any were loaded.
    """

    at: float
    stolen: int
    worked: int
    ticks: int
    each: Sequence[tuple[int, int]]
    own_s: float | None
    pressure_s: float | None
    queued_s: float | None
    late_s: float
    probes: int
    latest_s: float
    skipped: int | None = None


class DisturbanceWatch:
    """Watches the host while active. A context manager; `seconds` may be asked for at any time.

    skipped: how many BPF programs the kernel has skipped so far (pins.skipped_results).
    """

    def __init__(self, skipped: Callable[[], int | None] = lambda: None) -> None:
        self._skipped = skipped
        self._samples: list[HostSample] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._probe, name="disturbance", daemon=True)
        self._children = _Children()

    def __enter__(self) -> DisturbanceWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def seconds(self, start: float, end: float) -> list[Second]:
        """The seconds from `start` to `end` (CLOCK_MONOTONIC), the last one as long as is left."""
        return seconds_of(self._samples, start, end)

    def _probe(self) -> None:
        late_s = latest_s = 0.0
        probes = 0
        while not self._over.is_set():
            if probes % _PROBES_PER_SAMPLE == 0:
                self._samples.append(self._sample(late_s, probes, latest_s))
                latest_s = 0.0
            due = time.monotonic() + PROBE_S
            time.sleep(PROBE_S)
            late = max(0.0, time.monotonic() - due)
            late_s, latest_s, probes = late_s + late, max(latest_s, late), probes + 1
        self._samples.append(self._sample(late_s, probes, latest_s))

    def _sample(self, late_s: float, probes: int, latest_s: float) -> HostSample:
        stolen, worked, ticks, each = cpu_ticks()
        ran_s, queued_s = self._children.ran_and_queued_s()
        return HostSample(
            at=time.monotonic(),
            stolen=stolen,
            worked=worked,
            ticks=ticks,
            each=each,
            own_s=None if ran_s is None else ran_s + time.process_time(),
            pressure_s=_pressure_s(),
            queued_s=queued_s,
            late_s=late_s,
            probes=probes,
            latest_s=latest_s,
            skipped=self._skipped(),
        )


def seconds_of(samples: Sequence[HostSample], start: float, end: float) -> list[Second]:
    """The samples between two instants by seconds, counted from `start`."""
    inside = [each for each in samples if start <= each.at <= end]
    found: list[Second] = []
    first = 0
    for index, each in enumerate(inside):
        last = index == len(inside) - 1
        if index > first and (each.at - start >= len(found) + 1 or last):
            found.append(_second(inside[first : index + 1]))
            first = index
    return found


def _second(samples: Sequence[HostSample]) -> Second:
    begin, end = samples[0], samples[-1]
    length_s = end.at - begin.at
    ticks = max(1, end.ticks - begin.ticks)
    own = None
    if begin.own_s is not None and end.own_s is not None:
        own = (end.own_s - begin.own_s) * os.sysconf("SC_CLK_TCK") / ticks

    def rate(before: float | None, after: float | None) -> float | None:
        return None if before is None or after is None else max(0.0, after - before) / length_s

    return Second(
        at=begin.at,
        length_s=length_s,
        stolen=(end.stolen - begin.stolen) / ticks,
        busiest=_busiest(samples),
        own=own,
        others=None if own is None else max(0.0, (end.worked - begin.worked) / ticks - own),
        pressure=rate(begin.pressure_s, end.pressure_s),
        queued=rate(begin.queued_s, end.queued_s),
        late_s=(end.late_s - begin.late_s) / max(1, end.probes - begin.probes),
        latest_s=max(each.latest_s for each in samples[1:]),
        skipped=_more(begin.skipped, end.skipped),
    )


def _more(before: int | None, after: int | None) -> int | None:
    """Return the gain of a counter that starts at 0 when programs are loaded."""
    return None if after is None else max(0, after - (before or 0))


def _busiest(samples: Sequence[HostSample]) -> float | None:
    """The mean, over the times between samples, of the busiest CPU's share of its time in use."""
    shares = []
    for begin, end in itertools.pairwise(samples):
        each = [
            (used - used_before) / (ticks - ticks_before)
            for (used_before, ticks_before), (used, ticks) in zip(
                begin.each, end.each, strict=False
            )
            if ticks > ticks_before
        ]
        shares += [max(each)] if each else []
    return sum(shares) / len(shares) if shares else None


def cpu_ticks(stat: Path = _PROC / "stat") -> tuple[int, int, int, list[tuple[int, int]]]:
    """Ticks since boot: stolen from all CPUs by a hypervisor, used by processes, and all of them;
    and of each CPU those in use, by whomever, and all."""
    with open(stat) as file:
        ticks, *each = [
            [int(word) for word in line.split()[1:9]] for line in file if line.startswith("cpu")
        ]
    return ticks[7], sum(ticks[:3]), sum(ticks), [(sum(t) - t[3] - t[4], sum(t)) for t in each]


def _pressure_s(path: Path = _PROC / "pressure" / "cpu") -> float | None:
    """Seconds since boot during which some task waited for a CPU; None without PSI."""
    try:
        some = path.read_text().partition("\n")[0]
        return int(some.rpartition("total=")[2]) / 1e6
    except (OSError, ValueError):
        return None


class _Children:
    """The time for which this process's children ran and waited for a CPU, in all of their threads.

    Those that ended are included, as far as they were seen.
    """

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, int]] = {}
        self._ended = (0, 0)

    def ran_and_queued_s(self) -> tuple[float, float] | tuple[None, None]:
        """Seconds summed over all children so far; None where the kernel doesn't tell."""
        if _ran_and_queued_ns(_PROC / "self") is None:
            return None, None
        now = {task.name: each for task in _tasks() if (each := _ran_and_queued_ns(task))}
        ended = [each for thread, each in self._seen.items() if thread not in now]
        self._ended, self._seen = _sum([self._ended, *ended]), now
        ran, queued = _sum([self._ended, *now.values()])
        return ran / 1e9, queued / 1e9


def _sum(pairs: Iterable[tuple[int, int]]) -> tuple[int, int]:
    first, second = zip(*pairs, strict=True)
    return sum(first), sum(second)


def _tasks() -> Iterator[Path]:
    """The folders of all threads of this process's children."""
    for thread in (_PROC / str(os.getpid()) / "task").iterdir():
        with contextlib.suppress(OSError):
            for child in (thread / "children").read_text().split():
                with contextlib.suppress(OSError):
                    yield from (_PROC / child / "task").iterdir()


def _ran_and_queued_ns(task: Path) -> tuple[int, int] | None:
    """Nanoseconds that a thread ran, and that it was ready and had no CPU."""
    try:
        ran, queued, *_ = (task / "schedstat").read_text().split()
        return int(ran), int(queued)
    except (OSError, ValueError):
        return None
