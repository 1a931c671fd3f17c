"""What each job sends over time, from a packet capture.

The capture is read packet by packet, so its size doesn't matter; what is kept are bytes per time
bin, whose width grows with the capture's length.
"""

from __future__ import annotations

import ipaddress
import logging
import os
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from mltcp_tools.errors import UsageError
from mltcp_tools.profiling.frames import LINK_TYPES, Segment, parse_segment
from mltcp_tools.profiling.profile import Floats
from mltcp_tools.profiling.streams import Stream

By = Literal["host", "port"]

_FIRST_WIDTH_S = 1e-4
_MOST_BINS = 1 << 21  # of all jobs together: 16 MB
_REPORT_PACKETS = 4096
# Jobs that send less than this share of all bytes are handshakes and control traffic.
_LEAST_SHARE = 0.01


@dataclass(frozen=True)
class Series:
    """Payload bytes in consecutive bins of `width_s` seconds."""

    width_s: float
    bytes: Floats


@dataclass(frozen=True)
class Selector:
    """The flows of a job named on the command line: sent by these networks, or over these ports."""

    job: str
    networks: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]
    ports: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> Selector:
        """From `NAME=10.0.0.1,10.0.0.2`, `NAME=10.0.1.0/24` or `NAME=:5001`."""
        name, equals, places = text.partition("=")
        networks, ports = [], set()
        try:
            for place in places.split(","):
                if place.startswith(":"):
                    ports.add(int(place[1:]))
                else:
                    networks.append(ipaddress.ip_network(place, strict=False))
        except ValueError:
            equals = ""
        if not name or not equals:
            raise UsageError(
                f"{text!r} is no job; write it like NAME=10.0.0.1,10.0.0.2 (hosts that send) or"
                " NAME=:5001 (a port)."
            )
        return cls(name, tuple(networks), frozenset(ports))

    def takes(self, segment: Segment) -> bool:
        """Whether a flow is the job's."""
        if self.ports & {segment.source_port, segment.port}:
            return True
        source = _source(segment)
        return any(source in network for network in self.networks)


@dataclass(frozen=True)
class Capture:
    """What a capture shows: each job's series, all from the first packet on.

    left_out: bytes of flows that are no job's. missing: bytes that must have been sent but aren't
    in the capture. repeated: bytes sent or captured more than once, and counted once.
    """

    jobs: dict[str, Series]
    packets: int
    left_out: int
    missing: int
    repeated: int


def read_capture(
    path: Path,
    by: By = "host",
    selectors: Sequence[Selector] = (),
    progress: Callable[[int, int], None] = lambda position, size: None,
) -> Capture:
    """Read a pcap or pcapng file, plain or compressed by gzip.

    by: a job's flows come from one "host", or use one "port" (the lower one of a connection); with
    `selectors` only the flows that these take, in their order. progress: told the bytes read and
    the file's size. Raises UsageError for what is no capture, has no TCP payload, or a link type
    that isn't known.
    """
    reading = _Reading(by, selectors)
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
        raise UsageError(f"{path} is no packet capture: neither pcap nor pcapng.") from None
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


class _Reading:
    """What is known of a capture while it is read."""

    def __init__(self, by: By, selectors: Sequence[Selector]) -> None:
        self._by = by
        self._selectors = selectors
        self._flows: dict[tuple[bytes, int, int], tuple[Stream, array[float] | None]] = {}
        self._jobs: dict[str, array[float]] = {}
        self._width_s = _FIRST_WIDTH_S
        self._start_s: float | None = None
        self._longest = 0
        self._packets = 0
        self._all = 0
        self._repeated = 0

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
            flow = self._flows[key] = Stream(), self._bins(segment)
        stream, bins = flow
        if segment.syn:
            stream.begin(segment.sequence)
            return
        new = stream.add(segment.sequence, segment.payload)
        self._all += new
        self._repeated += segment.payload - new
        if bins is not None and new:
            self._count(bins, time_s - self._start_s, new)

    def _bins(self, segment: Segment) -> array[float] | None:
        """Where the bytes of a new flow are counted; nowhere if it is no job's."""
        if self._selectors:
            job = next((each.job for each in self._selectors if each.takes(segment)), None)
        elif self._by == "host":
            job = str(_source(segment))
        else:
            job = f":{min(segment.source_port, segment.port)}"
        return None if job is None else self._jobs.setdefault(job, array("d"))

    def _count(self, bins: array[float], after_s: float, new: int) -> None:
        place = max(0, int(after_s / self._width_s))  # clocks may have gone back
        if place >= self._longest:
            while (place + 1) * len(self._jobs) > _MOST_BINS:
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
        for bins in self._jobs.values():
            if len(bins) % 2:
                bins.append(0.0)
            pairs = np.array(bins).reshape(-1, 2).sum(axis=1)
            del bins[:]
            bins.frombytes(pairs.tobytes())

    def finish(self, path: Path) -> Capture:
        """What there is when all is read."""
        if not self._all:
            raise UsageError(
                f"{path} has zero bytes of TCP payload in {self._packets} packets, so there is no"
                " job in it."
            )
        totals = {job: sum(bins) for job, bins in self._jobs.items()}
        least = 0.0 if self._selectors else _LEAST_SHARE * sum(totals.values())
        kept = {job: bins for job, bins in self._jobs.items() if totals[job] > least}
        if not kept:
            raise UsageError(f"{path} has no flow of the jobs named; see it with tcpdump -nr.")
        return Capture(
            jobs={job: Series(self._width_s, np.frombuffer(kept[job])) for job in sorted(kept)},
            packets=self._packets,
            left_out=round(self._all - sum(totals[job] for job in kept)),
            missing=sum(stream.missing for stream, _ in self._flows.values()),
            repeated=self._repeated,
        )


def _source(segment: Segment) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    return ipaddress.ip_address(segment.addresses[: len(segment.addresses) // 2])
