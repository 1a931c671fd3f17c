# SPDX-License-Identifier: BSD-2-Clause
"""A TCP peer that acknowledges, loses, delays and reorders segments as a test says.

The kernel under test sends into a TUN device of a namespace of its own. This end of the device
reads the packets and answers them, so each ACK that the kernel sees is one that the test asked for,
and the kernel has dealt with an ACK when the call that sends it returns.
"""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import os
import socket
import struct
import subprocess
import time
import uuid
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

import dpkt
from pyroute2 import IPRoute, netns

from mltcp_tools.lab.testbed.namespaces import PREFIX, inside, remove_namespace, write_sysctl

ADDRESS, PEER, PORT = "10.77.0.1", "10.77.0.2", 7777
MSS = 1000
_PATIENT = {"lock": 1 << 13, "rto_min": 1000}
"""Of a route: the shortest timeout in milliseconds, RTAX_RTO_MIN, which is 13, locked."""

RECOVERY, LOSS = 3, 4  # enum tcp_ca_state

_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
_SO_SNDBUFFORCE = 32
_MSS_OPTION, _SACK_OPTION = struct.pack(">BBH", 2, 4, MSS), struct.pack(">BB", 4, 2)
_SCALE_OPTION = struct.pack(">BBB", 3, 3, 10)
_MOST_SACKS = 3


@dataclass(frozen=True)
class Segment:
    """Data on the wire: bytes begin to end of the stream, sent at sent_s of time.monotonic()."""

    begin: int
    end: int
    sent_s: float


@dataclass(frozen=True)
class Info:
    """A part of struct tcp_info."""

    ca_state: int
    ssthresh: int
    cwnd: int
    retransmits: int
    segs_in: int
    data_segs_out: int


class Peer:
    """The receiving end of one connection. sender: the kernel's end of it. sack: it uses SACK. ecn:
    it agrees to ECN."""

    def __init__(self, tun: int, sender: socket.socket, sack: bool, ecn: bool) -> None:
        self.sender = sender
        self.marked = False
        """True: its ACKs say that a mark has come."""
        self.under_way: list[Segment] = []
        """Sent by the kernel and not yet looked at here, in the order in which it was sent."""
        self._tun = tun
        self._sack, self._ecn = sack, ecn
        self._expected = 0
        self._beyond: list[tuple[int, int]] = []  # received out of order, the latest first
        self._sent = 0
        self._read = 0
        self._first_sequence = 0

    def connect(self, rtt_s: float) -> None:
        """Answer the handshake, which gives the kernel its first round-trip time."""
        self.sender.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            self.sender.connect((PEER, PORT))
        syn = self._next_packet()
        assert syn.data.flags & dpkt.tcp.TH_SYN
        self._port = syn.data.sport
        self._first_sequence = syn.data.seq + 1
        time.sleep(rtt_s)
        options = _MSS_OPTION + (_SACK_OPTION if self._sack else b"") + _SCALE_OPTION
        flags = dpkt.tcp.TH_SYN | dpkt.tcp.TH_ACK | (dpkt.tcp.TH_ECE if self._ecn else 0)
        self._write(flags, options + bytes(-len(options) % 4))
        self._next_packet()

    def info(self) -> Info:
        data = self.sender.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 160)
        ssthresh, cwnd = struct.unpack_from("=II", data, 76)
        (retransmits,) = struct.unpack_from("=I", data, 100)
        (segs_in,) = struct.unpack_from("=I", data, 140)
        (data_segs_out,) = struct.unpack_from("=I", data, 156)
        return Info(data[1], ssthresh, cwnd, retransmits, segs_in, data_segs_out)

    def send(self, size: int) -> None:
        """The kernel's end sends so many bytes."""
        assert self.sender.send(bytes(size)) == size
        self.take()

    def round_trip(
        self,
        rtt_s: float,
        lose: Collection[int] = (),
        late: Collection[int] = (),
        coalesce: int = 1,
    ) -> None:
        """Let a round trip pass: each segment under way arrives, and is acknowledged rtt_s after it
        was sent.

        lose: places in that order of segments that never arrive; late: of those that arrive behind
        all others. coalesce: so many that arrive have one ACK, which comes with the last of them.
        """
        segments = list(enumerate(self.under_way))
        self.under_way = []
        on_time = [each for place, each in segments if place not in {*lose, *late}]
        arriving = [*on_time, *(each for place, each in segments if place in late)]
        for count, segment in enumerate(arriving, 1):
            time.sleep(max(0.0, segment.sent_s + rtt_s - time.monotonic()))
            sacks = self._receive(segment)
            if count % coalesce == 0 or count == len(arriving):
                self.acknowledge(sacks)

    def _receive(self, segment: Segment) -> list[tuple[int, int]]:
        """A segment arrives; what SACK and DSACK say of it."""
        span = segment.begin, segment.end
        twice = segment.end <= self._expected or any(
            begin <= segment.begin and segment.end <= end for begin, end in self._beyond
        )
        if not twice:
            self._beyond = _merged(span, self._beyond)
            for begin, end in self._beyond:
                if begin <= self._expected:
                    self._expected = max(self._expected, end)
            self._beyond = [each for each in self._beyond if each[0] > self._expected]
        return [span, *self._beyond] if twice else self._beyond

    def acknowledge(self, sacks: Collection[tuple[int, int]] = ()) -> None:
        """Send an ACK of all that came in order, with these blocks of SACK."""
        options = b""
        if self._sack and (sacks := list(sacks)[:_MOST_SACKS]):
            options = struct.pack(">BBBB", 1, 1, 5, 2 + 8 * len(sacks))
            for begin, end in sacks:
                options += struct.pack(">II", self._sequence(begin), self._sequence(end))
        before = self.info().segs_in
        self._write(dpkt.tcp.TH_ACK | (dpkt.tcp.TH_ECE if self.marked else 0), options)
        self._wait(lambda: self.info().segs_in > before)
        self.take()

    def forget(self) -> None:
        """Whatever is under way is lost."""
        self.under_way = []

    def wait_for(self, ca_state: int) -> None:
        """Wait for the kernel to enter a state on its own, and take what it sends for it."""
        self._wait(lambda: self.info().ca_state == ca_state)
        self.take()

    def wait_for_probe(self) -> None:
        """Wait until the kernel sends something on its own, and take it."""
        before = self.info().data_segs_out
        self._wait(lambda: self.info().data_segs_out > before)
        self.take()

    def take(self) -> None:
        """Read all that the kernel has sent."""

        def all_read() -> bool:
            with contextlib.suppress(BlockingIOError):
                while True:
                    self._read_one()
            return self._read == self.info().data_segs_out

        self._wait(all_read)

    def _read_one(self) -> None:
        tcp = dpkt.ip.IP(os.read(self._tun, 4096)).data
        if size := len(tcp.data):
            begin = (tcp.seq - self._first_sequence) % 2**32
            self.under_way.append(Segment(begin, begin + size, time.monotonic()))
            self._read += 1

    def _next_packet(self) -> dpkt.ip.IP:
        found: list[bytes] = []

        def came() -> bool:
            with contextlib.suppress(BlockingIOError):
                found.append(os.read(self._tun, 4096))
            return bool(found)

        self._wait(came)
        return dpkt.ip.IP(found[0])

    def _wait(self, done: Callable[[], bool], seconds: float = 30) -> None:
        deadline = time.monotonic() + seconds
        while not done():
            assert time.monotonic() < deadline, f"nothing came; the kernel is at {self.info()}"
            time.sleep(0.0002)

    def _sequence(self, byte: int) -> int:
        return (self._first_sequence + byte) % 2**32

    def _write(self, flags: int, options: bytes) -> None:
        tcp = dpkt.tcp.TCP(
            sport=PORT,
            dport=self._port,
            seq=self._sent,
            ack=self._sequence(self._expected),
            flags=flags,
            win=65535,
            opts=options,
        )
        tcp.off = (20 + len(options)) // 4
        os.write(self._tun, ip_packet(PEER, ADDRESS, dpkt.ip.IP_PROTO_TCP, tcp))
        if flags & dpkt.tcp.TH_SYN:
            self._sent += 1


def ip_packet(source: str, destination: str, protocol: int, data: object, tos: int = 0) -> bytes:
    addresses = {"src": socket.inet_aton(source), "dst": socket.inet_aton(destination)}
    packet = dpkt.ip.IP(p=protocol, tos=tos, ttl=64, data=data, **addresses)
    packet.len = len(packet)
    return bytes(packet)


def _merged(span: tuple[int, int], spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The spans with another one, which comes first, joined with those that it touches."""
    apart = []
    for begin, end in spans:
        if begin <= span[1] and span[0] <= end:
            span = min(begin, span[0]), max(end, span[1])
        else:
            apart.append((begin, end))
    return [span, *apart]


@contextlib.contextmanager
def tun() -> Iterator[int]:
    """A TUN device of the calling thread's namespace, a new one, up, with ADDRESS and IPv4 alone;
    the descriptor of its packets."""
    for which in ("all", "default"):
        write_sysctl(f"net.ipv6.conf.{which}.disable_ipv6", "1")
    if not os.path.exists("/dev/net/tun"):
        subprocess.run(["modprobe", "tun"], check=True)
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    try:
        fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", b"peer", _IFF_TUN | _IFF_NO_PI))
        with IPRoute() as ip:
            (index,) = ip.link_lookup(ifname="peer")
            ip.addr("add", index=index, address=ADDRESS, prefixlen=24)
            ip.link("set", index=index, state="up", mtu=1500)
            # A host that is stopped for a moment between two ACKs must not time out.
            network = str(ipaddress.ip_network(f"{ADDRESS}/24", strict=False))
            ip.route("replace", dst=network, oif=index, metrics=_PATIENT)
        yield device
    finally:
        os.close(device)


@contextlib.contextmanager
def scripted_peer_here(
    congestion_control: str,
    rtt_s: float,
    *,
    sack: bool = True,
    ecn: bool = False,
    probes: bool = False,
) -> Iterator[Peer]:
    """A connection from this namespace, a new one, to a peer; its handshake takes rtt_s. probes:
    the kernel sends one where the last ACKs don't come (RFC 8985, 7)."""
    with tun() as device, socket.socket() as sender:
        # A probe for a lost tail would come where a test holds ACKs back.
        write_sysctl("net.ipv4.tcp_early_retrans", "3" if probes else "0")
        write_sysctl("net.ipv4.tcp_slow_start_after_idle", "0")
        if ecn:  # reno's kind must ask, too
            write_sysctl("net.ipv4.tcp_ecn", "1")
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion_control.encode())
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            sender.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, 1 << 24)
        except PermissionError:  # in a container
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 24)
        # What isn't acknowledged must not keep the socket, and the congestion control with it.
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer = Peer(device, sender, sack, ecn)
        peer.connect(rtt_s)
        yield peer


@contextlib.contextmanager
def _prompt() -> Iterator[None]:
    """Come before other processes of a busy host: an ACK that is late tells of a queue."""
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    with contextlib.suppress(PermissionError):  # where real-time processes have no share
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    try:
        yield
    finally:
        os.sched_setscheduler(0, *before)


@contextlib.contextmanager
def scripted_peer(congestion_control: str, rtt_s: float, **more: bool) -> Iterator[Peer]:
    """A connection from a new namespace to a peer, as scripted_peer_here() makes it."""
    name = f"{PREFIX}peer{os.getpid()}{uuid.uuid4().hex[:4]}"
    netns.create(name)
    try:
        with contextlib.ExitStack() as stack:
            stack.enter_context(_prompt())
            with inside(name):
                here = scripted_peer_here(congestion_control, rtt_s, **more)
                peer = stack.enter_context(here)
            yield peer
    finally:
        remove_namespace(name)
