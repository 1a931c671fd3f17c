# SPDX-License-Identifier: BSD-2-Clause
"""Packet captures made up from the schedule of emulated jobs."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scapy.layers.inet import IP, TCP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import CookedLinux, CookedLinuxV2, Dot1Q, Ether
from scapy.packet import Packet, Raw
from scapy.utils import RawPcapNgWriter, RawPcapWriter

from mltcp_tools.lab.emulator.job import JobSpec, compute_times

MSS = 1448
START_S = 1_700_000_000.0

LINKS: dict[str, tuple[int, Packet]] = {
    "ethernet": (1, Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")),
    "vlan": (1, Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / Dot1Q(vlan=7)),
    "qinq": (
        1,
        Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02", type=0x88A8)
        / Dot1Q(vlan=7)
        / Dot1Q(vlan=8),
    ),
    "cooked": (113, CookedLinux()),
    "cooked-2": (276, CookedLinuxV2()),
    "raw": (101, Raw(b"")),
}


@dataclass(frozen=True)
class Sent:
    """A segment: when it was sent, and which bytes of its flow it carries.

    source_port: 40000 and some, by `port`, if 0.
    """

    time_s: float
    source: str
    port: int
    sequence: int
    payload: int
    target: str = "10.0.0.1"
    source_port: int = 0


def bursts(spec: JobSpec, rate_bps: float) -> Iterator[tuple[float, float]]:
    """Start and end of each burst of a job that has a link of `rate_bps` to itself."""
    now_s = spec.start_delay_s
    length_s = spec.bytes_per_iteration * 8 / rate_bps / spec.bursts
    for compute_s in compute_times(spec):
        for _ in range(spec.bursts):
            now_s += compute_s / spec.bursts
            yield now_s, now_s + length_s
            now_s += length_s


def segments(
    spec: JobSpec,
    rate_bps: float,
    source: str,
    port: int = 5001,
    size: int = MSS,
    first_sequence: int = 1000,
) -> Iterator[Sent]:
    """The segments of such a job, evenly spaced over its bursts."""
    sequence = first_sequence
    for start_s, end_s in bursts(spec, rate_bps):
        total = spec.bytes_per_iteration // spec.bursts
        for offset in range(0, total, size):
            payload = min(size, total - offset)
            time_s = start_s + (end_s - start_s) * offset / total
            yield Sent(time_s, source, port, sequence % (1 << 32), payload)
            sequence += payload


def answered(sent: Iterable[Sent], target: str) -> Iterator[Sent]:
    """Segments to `target`, and as many back at the same times, as an all-reduce of two has it."""
    for each in sent:
        port = 40_000 + each.port % 1000
        yield replace(each, target=target, source_port=port)
        yield replace(each, source=target, target=each.source, source_port=each.port, port=port)


def write_capture(
    path: Path,
    sent: Iterable[Sent],
    *,
    link: str = "ethernet",
    snaplen: int = 96,
    ng: bool = False,
    nano: bool = False,
) -> Path:
    """Write segments, in the order of their times, as a capture cut to `snaplen` bytes a packet."""
    kind, header = LINKS[link]
    heads: dict[tuple[str, str, int, int], bytes] = {}
    writer: Any
    if ng:
        writer = RawPcapNgWriter(str(path))
        writer.linktype = kind
    else:
        writer = RawPcapWriter(str(path), linktype=kind, snaplen=snaplen, nano=nano)
    with writer:
        writer.write_header(None)
        for each in sorted(sent, key=lambda one: one.time_s):
            key = each.source, each.target, each.source_port or 40_000 + each.port % 1000, each.port
            if key not in heads:
                heads[key] = bytes(_packet(header, *key))
            frame = _with(heads[key], each.sequence, each.payload, ":" in each.source)
            wire = len(frame) + each.payload
            data = frame + bytes(min(each.payload, max(0, snaplen - len(frame))))
            stamp = START_S + each.time_s
            second = int(stamp)
            fraction = int((stamp - second) * (1e9 if nano else 1e6))
            options = {"caplen": len(data), "wirelen": wire}
            if ng:
                writer.write_packet(data, sec=stamp, usec=0, **options)
            else:
                writer.write_packet(data, sec=second, usec=fraction, **options)
    return path


def _packet(header: Packet, source: str, target: str, source_port: int, port: int) -> Packet:
    network = IPv6(src=source, dst="fd00::99") if ":" in source else IP(src=source, dst=target)
    packet: Packet = network / TCP(sport=source_port, dport=port, flags="A")
    return packet if header.name == "Raw" else header.copy() / packet


def _with(head: bytes, sequence: int, payload: int, ipv6: bool) -> bytes:
    """The headers with sequence number and lengths of a segment; checksums are left as they are."""
    frame = bytearray(head)
    tcp = len(head) - 20
    struct.pack_into("!I", frame, tcp + 4, sequence)
    if ipv6:
        struct.pack_into("!H", frame, tcp - 36, 20 + payload)
    else:
        struct.pack_into("!H", frame, tcp - 18, 40 + payload)
    return bytes(frame)
