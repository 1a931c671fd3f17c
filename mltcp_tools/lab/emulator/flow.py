# SPDX-License-Identifier: BSD-2-Clause
"""The client's connections: opening them, and one flow's part of a burst."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from mltcp_tools.base.errors import HostError, MltcpError, UsageError
from mltcp_tools.lab.emulator.job import Direction, JobSpec
from mltcp_tools.lab.emulator.protocol import (
    BurstHeader,
    Confirmation,
    Hello,
    ProtocolError,
    Welcome,
)
from mltcp_tools.lab.emulator.sockets import (
    StallWatch,
    congestion_control,
    prepare_socket,
    set_congestion_control,
)
from mltcp_tools.lab.emulator.stream import Incoming, Outgoing, PeerClosed
from mltcp_tools.lab.emulator.tcpinfo import read_tcp_info


@dataclass(frozen=True)
class ServerAddress:
    """The server, and after how many seconds of silence it counts as gone."""

    host: str
    port: int
    timeout_s: float

    def __str__(self) -> str:
        return f"The server at {self.host} port {self.port}"

    @contextmanager
    def errors(self, where: str) -> Iterator[None]:
        """Turn what the kernel says about a lost peer into one sentence (an MltcpError)."""
        try:
            yield
        except ProtocolError as error:
            raise MltcpError(
                f"{self} isn't usable ({error}); is another program listening there?"
            ) from error
        except OSError as error:
            if isinstance(error, TimeoutError):
                reason = f"nothing moved for {self.timeout_s:g} s"
            elif isinstance(error, PeerClosed):
                reason = "it closed the connection"
            else:
                reason = (error.strerror or str(error)).lower()
            raise MltcpError(
                f"{self} disappeared {where} ({reason}); check that it still runs and that the "
                "network between is up."
            ) from error


class ClientFlow:
    """One connection and its part of the burst under way."""

    def __init__(self, index: int, sock: socket.socket) -> None:
        self.index = index
        self.sock = sock
        self.outgoing = Outgoing()
        self.incoming = Incoming()
        self.acked_before = 0
        self.server_retransmits = 0
        self.progress: StallWatch | None = None
        self.waits_to_send = False
        self._header = BurstHeader(0, 0, 0)
        self._chunk: int | None = None

    def begin(
        self,
        number: int,
        share: int,
        direction: Direction,
        now: float,
        chunk: int | None,
    ) -> None:
        """Start burst `number`, of `share` bytes; hands the first of them over.

        chunk: bytes that each end sends at a time, the next once as many have arrived.
        """
        self._header = BurstHeader(number, share, 0 if direction == "send" else share)
        self.progress = StallWatch(self.sock, now)
        self._chunk = chunk
        self.outgoing = Outgoing(self._header.pack(), self._header.payload_up(), chunk)
        self.incoming = Incoming(self._header.payload_down(), Confirmation.LAYOUT.size)
        self.outgoing.pump(self.sock)

    def receive(self) -> bool:
        """Take what has arrived; True when the flow's part of the burst is confirmed."""
        done = self.incoming.pump(self.sock)
        if self._chunk is not None and not self.outgoing.done:
            self.outgoing.allow(self.incoming.turn(self._chunk))
            self.outgoing.pump(self.sock)
        return done

    def finish(self) -> None:
        """Check the confirmation, which has arrived. Raises ProtocolError."""
        confirmation = Confirmation.unpack(self.incoming.record)
        number = self._header.number & 0xFFFFFFFF
        if (confirmation.number, confirmation.received) != (number, self._header.up):
            raise ProtocolError("it confirmed a different burst")
        self.server_retransmits = confirmation.retransmits

    def unexpected(self) -> None:
        """The socket is readable while nothing is due: raises what that means."""
        if self.sock.recv(1):
            raise ProtocolError("it sent unexpected data")
        raise PeerClosed("the connection was closed")

    def mark(self) -> None:
        """Count acknowledged bytes from here."""
        self.acked_before = read_tcp_info(self.sock).bytes_acked


def connect_flows(spec: JobSpec, peer: ServerAddress) -> tuple[list[ClientFlow], str]:
    """All connections of a job, non-blocking, and the congestion control of the sending side.

    Raises UsageError (unknown host), HostError (congestion control) or MltcpError (no server).
    """
    flows: list[ClientFlow] = []
    where = "while connecting"
    try:
        for index in range(spec.flows):
            flow = ClientFlow(index, _open(spec.cc, peer))
            flows.append(flow)
            hello = Hello(spec.direction, spec.cc or "", spec.chunk or 0)
            with peer.errors(where):
                flow.sock.sendall(hello.pack())
        for flow in flows:
            with peer.errors(where):
                welcome = _read_welcome(flow.sock)
            if not welcome.accepted:
                raise HostError(f"{peer} refused: {welcome.text}")
            flow.sock.setblocking(False)
        own_cc = congestion_control(flows[0].sock)
    except BaseException:
        for flow in flows:
            flow.sock.close()
        raise
    return flows, own_cc


def _open(cc: str | None, peer: ServerAddress) -> socket.socket:
    """A connected socket with its options set; tries the host's addresses in turn."""
    try:
        addresses = socket.getaddrinfo(peer.host, peer.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise UsageError(
            f"The host name {peer.host!r} can't be resolved; check it, or give an address."
        ) from error
    reason = "no address"
    for family, kind, number, _, address in addresses:
        try:
            sock = socket.socket(family, kind, number)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            continue
        try:
            prepare_socket(sock, peer.timeout_s)
            if cc is not None:
                set_congestion_control(sock, cc)
            sock.settimeout(peer.timeout_s)
            sock.connect(address)
            return sock
        except TimeoutError:
            sock.close()
            reason = f"no answer for {peer.timeout_s:g} s"
        except OSError as error:
            sock.close()
            reason = (error.strerror or str(error)).lower()
        except BaseException:
            sock.close()
            raise
    raise MltcpError(
        f"{peer} can't be reached ({reason}); start it there with "
        f"`mltcp lab emulate server --port {peer.port}`."
    )


def _read_welcome(sock: socket.socket) -> Welcome:
    data = b""
    while len(data) < Welcome.LAYOUT.size:
        more = sock.recv(Welcome.LAYOUT.size - len(data))
        if not more:
            raise PeerClosed("the connection was closed")
        data += more
        Welcome.check_start(data)
    return Welcome.unpack(data)
