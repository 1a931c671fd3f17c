# SPDX-License-Identifier: BSD-2-Clause
"""The bytes that each job sends over time, from a packet capture.

The capture is read packet by packet, so its size doesn't matter; what is kept are bytes per time
bin and direction, whose width grows with the capture's length.
"""

from __future__ import annotations

import logging
import os
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import numpy as np

from mltcp_tools.base.errors import UsageError
from mltcp_tools.lab.profiling.frames import LINK_TYPES, Segment, parse_segment
from mltcp_tools.lab.profiling.profile import Floats
from mltcp_tools.lab.profiling.selector import Selector, ends
from mltcp_tools.lab.profiling.streams import Stream

_FIRST_WIDTH_S = 1e-4
_MOST_BINS = 1 << 21  # of all jobs together: 16 MB
_REPORT_PACKETS = 4096
# Jobs that send less than this share of all bytes are handshakes and control traffic.
_LEAST_SHARE = 0.01
# Where the one of two hosts sends at least this share of what the other sends, neither is the
# sender.
_ALIKE = 0.5
_WAYS = ("there", "back")


@dataclass(frozen=True)
class Series:
    """Payload bytes in consecutive bins of `width_s` seconds: sent there, and what came back.

    back: as many bins or fewer; None where nothing did.
    """

    width_s: float
    bytes: Floats
    back: Floats | None = None

    @property
    def both(self) -> Series:
        """All bytes of both directions, in which the job's iterations are looked for."""
        if self.back is None:
            return self
        total = np.zeros(max(self.bytes.size, self.back.size))
        total[: self.bytes.size] += self.bytes
        total[: self.back.size] += self.back
        return Series(self.width_s, total)


@dataclass(frozen=True)
class Capture:
    """The content of a capture: each job's series, all from the first packet on.

    servers: of each job, the ports of its connections' servers. left_out: bytes of flows that are
    no job's. missing: bytes that must have been sent but aren't in the capture. What was sent or
    captured more than once counts once.
    """

    jobs: dict[str, Series]
    servers: dict[str, set[int]]
    packets: int
    left_out: int
    missing: int


def read_capture(
    path: Path,
    selectors: Sequence[Selector] = (),
    progress: Callable[[int, int], None] = lambda position, size: None,
) -> Capture:
    """Read a pcap or pcapng file, plain or compressed by gzip.

    With `selectors`, a job has the flows that these take, in their order. Else a job's connections
    are those of one host: of the two of a connection the one that sends more; where both send about
    as much, the one with fewer peers, then the lower address. progress: told the bytes read and the
    file's size. Raises UsageError for what is not a capture, has no TCP payload, or a link type
    that isn't known.
    """
    reading = _Reading(selectors)
    for position, size in _packets(path, reading.add):
        progress(position, size)
    return reading.finish(path)


def _packets(
    path: Path, take: Callable[[float, bytes, int, int], None]
) -> Iterator[tuple[int, int]]:
    """Have `take` hear of every packet; yields how far the file is read from time to time."""
    logging.getLogger("scapy").setLevel(logging.ERROR)
    from scapy.error import Scapy_Exception
    from scapy.utils import RawPcapReader

    try:
        size = os.path.getsize(path)
        with path.open("rb") as file:
            reader: Any = RawPcapReader(file)  # type: ignore[arg-type]
            stamp = _stamper(reader)
            for number, (data, about) in enumerate(reader):
                link_type = getattr(about, "linktype", None)
                take(
                    stamp(about),
                    data,
                    reader.linktype if link_type is None else link_type,
                    about.wirelen,
                )
                if number % _REPORT_PACKETS == 0:
                    yield file.tell(), size
    except (Scapy_Exception, EOFError):
        raise UsageError(f"{path} is not a packet capture: neither pcap nor pcapng.") from None
    except FileNotFoundError:
        raise UsageError(f"{path} doesn't exist; name a packet capture.") from None
    except IsADirectoryError:
        raise UsageError(f"{path} is a folder; name a packet capture.") from None


def _stamper(reader: Any) -> Callable[[Any], float]:
    """A function that gives a packet's time in seconds."""
    if hasattr(reader, "interfaces"):  # pcapng

        def stamp_ng(about: Any) -> float:
            if about.tshigh is None:
                raise UsageError("The capture has packets without a time; capture it anew.")
            return float((about.tshigh << 32 | about.tslow) / about.tsresol)

        return stamp_ng
    fraction = 1e-9 if reader.nano else 1e-6
    return lambda about: float(about.sec + about.usec * fraction)


@dataclass
class _Flow:
    """One direction of a connection: where its bytes are counted, if anywhere, and how many."""

    segment: Segment
    key: tuple[str, str] | None
    stream: Stream = field(default_factory=Stream)
    bytes: int = 0


class _Reading:
    """The knowledge of a capture while it is read.

    Bytes are counted by job and direction; by host these are who sends and who gets them, as it is
    known at the end only whose job that is.
    """

    def __init__(self, selectors: Sequence[Selector]) -> None:
        self._selectors = selectors
        self._flows: dict[tuple[bytes, int, int], _Flow] = {}
        self._bins: dict[tuple[str, str], array[float]] = {}
        self._width_s = _FIRST_WIDTH_S
        self._start_s: float | None = None
        self._longest = 0
        self._packets = 0

    def add(self, time_s: float, data: bytes, link_type: int, wire_length: int) -> None:
        """A packet."""
        self._packets += 1
        if link_type not in LINK_TYPES:
            raise UsageError(
                f"The capture's link type {link_type} isn't known; capture on Ethernet, or on any"
                " with `tcpdump -i any`."
            )
        segment = parse_segment(data, link_type, wire_length)
        if self._start_s is None:
            self._start_s = time_s
        if segment is None or not (segment.payload or segment.syn):
            return
        key = (segment.addresses, segment.source_port, segment.port)
        flow = self._flows.get(key)
        if flow is None:
            flow = self._flows[key] = _Flow(segment, self._key(segment))
        if segment.syn:
            flow.stream.begin(segment.sequence)
            return
        new = flow.stream.add(segment.sequence, segment.payload)
        flow.bytes += new
        if flow.key is not None and new:
            self._count(flow.key, time_s - self._start_s, new)

    def _key(self, segment: Segment) -> tuple[str, str] | None:
        """Return the key under which a new flow's bytes are counted; None if it is not a job's."""
        source, target = ends(segment)
        if self._selectors:
            for each in self._selectors:
                back = each.way(segment)
                if back is not None:
                    return each.job, _WAYS[back]
            return None
        return str(source), str(target)

    def _count(self, key: tuple[str, str], after_s: float, new: int) -> None:
        bins = self._bins.setdefault(key, array("d"))
        place = max(0, int(after_s / self._width_s))  # clocks may have gone back
        if place >= self._longest:
            while (place + 1) * len(self._bins) > _MOST_BINS:
                self._widen()
                place //= 2
            self._longest = max(self._longest, place + 1)
        if place >= len(bins):
            bins.frombytes(bytes(8 * (place + 1 - len(bins))))
        bins[place] += new

    def _widen(self) -> None:
        """Make bins twice as wide."""
        self._width_s *= 2
        self._longest = -(-self._longest // 2)
        for bins in self._bins.values():
            if len(bins) % 2:
                bins.append(0.0)
            pairs = np.array(bins).reshape(-1, 2).sum(axis=1)
            del bins[:]
            bins.frombytes(pairs.tobytes())

    def finish(self, path: Path) -> Capture:
        """Return the capture when all is read."""
        everything = sum(flow.bytes for flow in self._flows.values())
        if not everything:
            raise UsageError(
                f"{path} has zero bytes of TCP payload in {self._packets} packets, so there is no"
                " job in it."
            )
        owners = {key: key for key in self._bins}
        if not self._selectors:
            owners = owners_of({key: sum(bins) for key, bins in self._bins.items()})
        jobs: dict[str, dict[str, Floats]] = {}
        for key, bins in self._bins.items():
            job, way = owners[key]
            ways = jobs.setdefault(job, {})
            ways[way] = _added(ways.get(way), np.frombuffer(bins))
        totals = {
            job: sum(float(each.sum()) for each in ways.values()) for job, ways in jobs.items()
        }
        least = 0.0 if self._selectors else _LEAST_SHARE * sum(totals.values())
        kept = [job for job in sorted(jobs) if totals[job] > least]
        if not kept:
            raise UsageError(f"{path} has no flow of the jobs named; see it with tcpdump -nr.")
        return Capture(
            jobs={job: self._series(jobs[job], totals[job]) for job in kept},
            servers={job: self._servers(job, owners) for job in kept},
            packets=self._packets,
            left_out=round(everything - sum(totals[job] for job in kept)),
            missing=sum(flow.stream.missing for flow in self._flows.values()),
        )

    def _series(self, ways: Mapping[str, Floats], total: float) -> Series:
        """A job's bytes; requests and greetings aren't a direction in use."""
        there, back = (ways.get(way, np.zeros(0)) for way in _WAYS)
        used = back.sum() > _LEAST_SHARE * total
        return Series(self._width_s, there, back if used else None)

    def _servers(self, job: str, owners: Mapping[tuple[str, str], tuple[str, str]]) -> set[int]:
        """The ports of the job's servers: of a connection's two ports, the lower one."""
        return {
            min(flow.segment.source_port, flow.segment.port)
            for flow in self._flows.values()
            if flow.bytes and flow.key is not None and owners[flow.key][0] == job
        }


def owners_of(sent: Mapping[tuple[str, str], float]) -> dict[tuple[str, str], tuple[str, str]]:
    """The job and the direction of what hosts send each other; a job is called after its host.

    sent: bytes by (sender, receiver).
    """
    peers: dict[str, set[str]] = {}
    for source, target in sent:
        peers.setdefault(source, set()).add(target)
        peers.setdefault(target, set()).add(source)
    found = {}
    for source, target in sent:
        own, other = sent[source, target], sent.get((target, source), 0.0)
        if min(own, other) < _ALIKE * max(own, other):
            owns = own > other
        else:
            ranks = [(len(peers[each]), ip_address(each).packed) for each in (source, target)]
            owns = ranks[0] < ranks[1]
        found[source, target] = (source, _WAYS[0]) if owns else (target, _WAYS[1])
    return found


def _added(one: Floats | None, other: Floats) -> Floats:
    if one is None:
        return other
    return Series(1.0, one, other).both.bytes
