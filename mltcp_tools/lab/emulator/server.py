# SPDX-License-Identifier: BSD-2-Clause
"""The server: takes bursts and confirms them, for any number of clients at once.

One selector drives all connections. Whatever a connection sends can end that connection and nothing
else.
"""

from __future__ import annotations

import errno
import selectors
import socket
import time
from collections.abc import Callable
from enum import Enum, auto

from mltcp_tools.base.errors import HostError, UsageError
from mltcp_tools.base.units import format_bytes
from mltcp_tools.kernel.host.facts import available_congestion_controls
from mltcp_tools.lab.emulator.control import Control
from mltcp_tools.lab.emulator.listener import listen, peer_name, raise_descriptor_limit
from mltcp_tools.lab.emulator.protocol import (
    BurstHeader,
    Confirmation,
    Hello,
    ProtocolError,
    Welcome,
)
from mltcp_tools.lab.emulator.sockets import (
    StallWatch,
    prepare_socket,
    set_congestion_control,
)
from mltcp_tools.lab.emulator.stream import Incoming, Outgoing, PeerClosed
from mltcp_tools.lab.emulator.tcpinfo import read_tcp_info

_READ = selectors.EVENT_READ
_WRITE = selectors.EVENT_WRITE
_SWEEP_S = 1.0
_ACCEPTS_PER_TURN = 64


class _Stage(Enum):
    HELLO = auto()
    WELCOME = auto()
    HEADER = auto()
    BURST = auto()
    CONFIRMATION = auto()


class _Connection:
    """One flow, and where it stands in the protocol."""

    def __init__(self, sock: socket.socket, peer: str, now: float) -> None:
        self.sock = sock
        self.peer = peer
        self.started = now
        self.bytes = 0
        self.stage = _Stage.HELLO
        self.incoming = Incoming(record=Hello.LAYOUT.size)
        self.outgoing = Outgoing()
        self.hello: Hello | None = None
        self.header = BurstHeader(0, 0, 0)
        self.progress = StallWatch(sock, now)
        self.interest = _READ

    @property
    def wanted(self) -> int:
        """The events this connection waits for; never none."""
        return (0 if self.incoming.done else _READ) | (_WRITE if self.outgoing.ready else 0)

    def take_turn(self) -> None:
        """Let the next chunk go when the client's has come, where they take turns."""
        if self.hello is not None and self.hello.chunk and self.stage is _Stage.BURST:
            self.outgoing.allow(self.incoming.turn(self.hello.chunk))
            self.outgoing.pump(self.sock)


class EmulatorServer:
    """Listens on `port` (0: any free one) of address `bind` (None: all, IPv4 and IPv6).

    `log` gets one line per event. A connection that has a burst or its hello outstanding and moves
    nothing for `timeout_s` seconds is dropped. Raises BusyError, HostError or UsageError where it
    can't listen.
    """

    def __init__(
        self,
        port: int,
        bind: str | None = None,
        *,
        timeout_s: float = 10.0,
        cc: str | None = None,
        log: Callable[[str], None] = lambda line: None,
        control: Control | None = None,
    ) -> None:
        if not 0.001 <= timeout_s <= 86400:
            raise UsageError(f"The timeout must be 1 ms to a day, not {timeout_s:g} s.")
        self._timeout_s = timeout_s
        self._log = log
        self._control = control
        self._selector = selectors.DefaultSelector()
        self._connections: set[_Connection] = set()
        self._capacity = raise_descriptor_limit()
        self._refused = 0
        self._listener = listen(port, bind)
        self._listener.setblocking(False)
        if cc is not None:
            set_congestion_control(self._listener, cc)  # its connections inherit it
        self.address: str = self._listener.getsockname()[0]
        self.port: int = self._listener.getsockname()[1]

    def serve(self) -> None:
        """Serve until interrupted."""
        self._selector.register(self._listener, _READ)
        if self._control is not None:
            self._selector.register(self._control, _READ)
            self._control.listening(self.port)
        self._log(f"listening on {self.address} port {self.port}")
        next_sweep = time.monotonic() + _SWEEP_S
        try:
            while True:
                # With nobody connected there is nothing to sweep, and no reason to wake up.
                idle = not self._connections and not self._refused
                timeout = None if idle else max(0.0, next_sweep - time.monotonic())
                for key, mask in self._selector.select(timeout):
                    if key.fileobj is self._listener:
                        self._accept()
                    elif key.fileobj is self._control:
                        self._control.check()
                    elif key.data in self._connections:
                        self._serve_connection(key.data, mask)
                if time.monotonic() >= next_sweep:
                    next_sweep = time.monotonic() + _SWEEP_S
                    self._sweep()
        finally:
            for connection in self._connections:
                connection.sock.close()
            self._listener.close()
            self._selector.close()

    def _accept(self) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            try:
                sock, address = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    # Level-triggered: it would come back at once. The sweep listens again.
                    self._selector.unregister(self._listener)
                    self._refused += 1
                    return
                continue
            if len(self._connections) >= self._capacity:
                sock.close()
                self._refused += 1
                continue
            try:
                sock.setblocking(False)
                prepare_socket(sock, self._timeout_s)
                connection = _Connection(sock, peer_name(address), time.monotonic())
            except OSError:
                sock.close()
                continue
            self._connections.add(connection)
            self._selector.register(sock, _READ, connection)

    def _sweep(self) -> None:
        now = time.monotonic()
        for connection in list(self._connections):
            if connection.stage is _Stage.HEADER:
                continue
            try:
                stalled = connection.progress.stalled_s(now)
            except OSError:
                stalled = self._timeout_s
            if stalled >= self._timeout_s:
                self._drop(connection, f"nothing moved for {self._timeout_s:g} s")
        if self._refused:
            self._log(f"refused {self._refused} connections: {len(self._connections)} are open")
            self._refused = 0
            if self._listener not in self._selector.get_map():
                self._selector.register(self._listener, _READ)

    def _serve_connection(self, connection: _Connection, mask: int) -> None:
        try:
            if mask & _WRITE:
                connection.outgoing.pump(connection.sock)
            if mask & _READ:
                connection.incoming.pump(connection.sock)
                connection.take_turn()
            self._advance(connection)
        except ProtocolError as error:
            self._drop(connection, str(error))
        except PeerClosed:
            between = connection.stage is _Stage.HEADER and not connection.incoming.record
            self._drop(connection, None if between else "it left in the middle of an exchange")
        except OSError as error:
            self._drop(connection, (error.strerror or str(error)).lower())
        else:
            if connection in self._connections and connection.wanted != connection.interest:
                connection.interest = connection.wanted
                self._selector.modify(connection.sock, connection.interest, connection)

    def _advance(self, connection: _Connection) -> None:
        """Move on to the next stage while the current one is complete."""
        while connection.incoming.done and connection.outgoing.done:
            if connection.stage is _Stage.HELLO:
                accepted = self._hello(connection)
                connection.stage = _Stage.WELCOME
                connection.outgoing.pump(connection.sock)
                if not accepted:
                    self._drop(connection, None)
                    return
            elif connection.stage in (_Stage.WELCOME, _Stage.CONFIRMATION):
                connection.incoming = Incoming(record=BurstHeader.LAYOUT.size)
                connection.stage = _Stage.HEADER
            elif connection.stage is _Stage.HEADER:
                self._begin_burst(connection)
                connection.stage = _Stage.BURST
                # What follows the header has most likely arrived with it.
                connection.incoming.pump(connection.sock)
                connection.outgoing.pump(connection.sock)
                connection.take_turn()
            else:
                self._end_burst(connection)
                connection.stage = _Stage.CONFIRMATION
                connection.outgoing.pump(connection.sock)

    def _hello(self, connection: _Connection) -> bool:
        """Answer the hello; False when it is refused."""
        hello = Hello.unpack(connection.incoming.record)
        try:
            if hello.direction == "both" and hello.cc:
                # Setting an unknown name as root makes the kernel load a module of that name:
                # not at the request of whoever connects.
                if hello.cc not in available_congestion_controls():
                    raise HostError(f"It has no congestion control {hello.cc!r}; load it there.")
                set_congestion_control(connection.sock, hello.cc)
        except HostError as error:
            connection.outgoing = Outgoing(Welcome(False, str(error)).pack())
            self._log(f"{connection.peer} refused: {error}")
            return False
        connection.hello = hello
        connection.outgoing = Outgoing(Welcome(True).pack())
        self._log(f"{connection.peer} connected")
        return True

    def _begin_burst(self, connection: _Connection) -> None:
        header = BurstHeader.unpack(connection.incoming.record)
        assert connection.hello is not None
        if (header.down == 0) != (connection.hello.direction == "send"):
            raise ProtocolError("it announced a burst in the wrong direction")
        connection.header = header
        connection.incoming = Incoming(header.payload_up())
        chunk = connection.hello.chunk or None
        connection.outgoing = Outgoing(b"", header.payload_down(), chunk)

    def _end_burst(self, connection: _Connection) -> None:
        header = connection.header
        retransmits = read_tcp_info(connection.sock).retransmits
        confirmation = Confirmation(header.number, header.up, retransmits)
        connection.outgoing = Outgoing(confirmation.pack())
        connection.bytes += header.up + header.down

    def _drop(self, connection: _Connection, reason: str | None) -> None:
        """Close a connection; `reason` says what was wrong, None that nothing was."""
        self._connections.discard(connection)
        self._selector.unregister(connection.sock)
        connection.sock.close()
        if connection.hello is None:
            if reason is not None:
                self._log(f"{connection.peer} dropped: {reason}")
            return
        seconds = time.monotonic() - connection.started
        ending = "finished" if reason is None else f"lost ({reason})"
        size = format_bytes(connection.bytes)
        self._log(f"{connection.peer} {ending}: {size} in {seconds:.1f} s")
