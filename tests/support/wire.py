# SPDX-License-Identifier: BSD-2-Clause
"""TCP flows on the wire: captured by tcpdump, and put together as their sender saw them."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from socket import inet_ntoa

import dpkt

from mltcp_tools.lab.testbed.namespaces import inside

Connection = tuple[str, int, str, int]
"""Address and port that send, then those that are sent to."""


@dataclass
class Sent:
    """Bytes that a flow sent without a moment at which nothing was outstanding.

    send_s: when sending began. first_ack_s, last_ack_s: when ACKs of its data came. Seconds of
    CLOCK_MONOTONIC. bytes: acknowledged.
    """

    send_s: float
    first_ack_s: float
    last_ack_s: float
    bytes: int


class _Flow:
    """One direction of a connection, as its sender's TCP accounts for it."""

    def __init__(self, sequence: int) -> None:
        self.sent: list[Sent] = []
        self._acknowledged = self._next = sequence  # not wrapped
        self._send_s: float | None = None

    def send(self, now_s: float, sequence: int, size: int) -> None:
        begin = self._unwrapped(sequence)
        if begin + size <= self._next:
            return  # a retransmission
        if self._acknowledged == self._next:
            self._send_s = now_s
        self._next = begin + size

    def acknowledge(self, now_s: float, sequence: int) -> None:
        # A FIN is acknowledged, too, and is not a byte.
        end = min(self._unwrapped(sequence), self._next)
        size = end - self._acknowledged
        if size <= 0:
            return
        self._acknowledged = end
        if self._send_s is not None:
            self.sent.append(Sent(self._send_s, now_s, now_s, 0))
            self._send_s = None
        self.sent[-1].last_ack_s = now_s
        self.sent[-1].bytes += size

    def _unwrapped(self, sequence: int) -> int:
        return self._next + (sequence - self._next + 2**31) % 2**32 - 2**31


def flows_of(packets: Iterable[tuple[float, bytes]], address: str) -> dict[Connection, list[Sent]]:
    """Return what each flow sent from an address, as the host with that address saw it.

    packets: times in seconds and Ethernet frames, which may be cut after the TCP header.
    """
    flows: dict[Connection, _Flow] = {}
    for now_s, frame in packets:
        ip = dpkt.ethernet.Ethernet(frame).data
        if not isinstance(ip, dpkt.ip.IP) or not isinstance(ip.data, dpkt.tcp.TCP):
            continue
        tcp = ip.data
        source, target = (inet_ntoa(ip.src), tcp.sport), (inet_ntoa(ip.dst), tcp.dport)
        if source[0] == address:
            if tcp.flags & dpkt.tcp.TH_SYN:
                flows[source + target] = _Flow(tcp.seq + 1)
                continue
            size = ip.len - 4 * ip.hl - 4 * tcp.off
            if size:
                flow = flows.setdefault(source + target, _Flow(tcp.seq))
                flow.send(now_s, tcp.seq, size)
        elif (flow := flows.get(target + source)) is not None and tcp.flags & dpkt.tcp.TH_ACK:
            flow.acknowledge(now_s, tcp.ack)
    return {connection: flow.sent for connection, flow in flows.items() if flow.sent}


@dataclass
class Capture:
    """The view of tcpdump at a host's interface. flows: by connection, once it has ended."""

    address: str
    flows: dict[Connection, list[Sent]] = field(default_factory=dict)


@contextlib.contextmanager
def captured(namespace: str, interface: str, address: str) -> Iterator[Capture]:
    """Capture what passes an interface of a namespace, whose address is given."""
    assert shutil.which("tcpdump"), "tcpdump is missing; run scripts/setup --train"
    capture = Capture(address)
    since_boot_s = time.time() - time.monotonic()
    with tempfile.TemporaryFile() as file:
        with inside(namespace):
            tcpdump = subprocess.Popen(
                # headers only; 64 MiB of buffer, as whoever is captured comes first
                ["tcpdump", "-i", interface, "-s", "96", "-B", "65536", "-n", "-w", "-", "tcp"],
                stdout=file,
                stderr=subprocess.PIPE,
                text=True,
            )
        try:
            assert tcpdump.stderr is not None
            assert "listening" in tcpdump.stderr.readline()
            yield capture
            tcpdump.send_signal(signal.SIGINT)
            _, said = tcpdump.communicate(timeout=60)
        finally:
            tcpdump.kill()
            tcpdump.wait()
        assert "\n0 packets dropped by kernel" in said, said
        file.seek(0)
        packets = ((each_s - since_boot_s, frame) for each_s, frame in dpkt.pcap.Reader(file))
        capture.flows = flows_of(packets, address)
