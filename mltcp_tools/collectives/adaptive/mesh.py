# SPDX-License-Identifier: BSD-2-Clause
"""TCP connections between the ranks, as many as are asked for, each named by both of its ends."""

from __future__ import annotations

import contextlib
import secrets
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from mltcp_tools.collectives.session import SessionError

_HELLO = struct.Struct("=16sIIII")  # the mesh's key; series, purpose, from, to
_LOOK_S = 0.2  # how often a rank that awaits calls looks whether it still should
_MOST_CALLERS = 1024  # heard at once: more than any job's trees need

Gather = Callable[[Any], list[Any]]
"""Told what this rank says, which JSON can, it returns what all ranks say, in their order."""


class Mesh:
    """This rank's listener, and connections to the others as `connect` makes them.

    gather: for agreeing on addresses and a key. series: of the connections made now, equal at all
    ranks: calls of an earlier series, which was given up, are refused. Raises SessionError where
    this host can't listen at `address`.
    """

    def __init__(
        self,
        rank: int,
        world: int,
        address: str,
        gather: Gather,
        timeout_s: float,
    ) -> None:
        self.rank, self.world, self.timeout_s = rank, world, timeout_s
        try:
            self._listener = socket.create_server((address, 0), backlog=_MOST_CALLERS)
        except OSError as error:
            raise SessionError(
                f"Rank {rank} can't listen at {address} ({error.strerror}), the address by which"
                " others reach it according to MASTER_ADDR."
            ) from None
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()  # of these
        self._closed = False
        self.series = 0
        try:
            told = gather([address, self._listener.getsockname()[1], secrets.token_hex(16)])
        except BaseException:
            self._listener.close()
            raise
        self._key = bytes.fromhex(told[0][2])
        self._addresses = [(each[0], each[1]) for each in told]

    def connect(
        self, wanted: Iterable[tuple[int, int, int]]
    ) -> dict[tuple[int, int, int], socket.socket]:
        """Connections by (purpose, from, to), of those in which this rank is one end.

        All ranks call it with the same list. The rank that sends connects. Raises SessionError.
        """
        mine = [each for each in wanted if self.rank in each[1:]]
        outgoing = [each for each in mine if each[1] == self.rank]
        incoming = {each for each in mine if each[2] == self.rank}
        made = {}
        try:
            for name in outgoing:
                made[name] = self._call(name)
            self._answer(incoming, made)
            with self._lock:
                if self._closed:
                    raise OSError("the job has ended")
                self._open += made.values()
        except OSError as error:
            for connection in made.values():
                connection.close()
            raise SessionError(f"Rank {self.rank} could not reach all others ({error}).") from None
        return made

    def _call(self, name: tuple[int, int, int]) -> socket.socket:
        called = socket.create_connection(self._addresses[name[2]], self.timeout_s)
        self._prepare(called)
        called.sendall(_HELLO.pack(self._key, self.series, *name))
        return called

    def _prepare(self, connection: socket.socket) -> None:
        connection.settimeout(self.timeout_s)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _answer(
        self, expected: set[tuple[int, int, int]], made: dict[tuple[int, int, int], socket.socket]
    ) -> None:
        """Take those expected into `made`; whoever doesn't know the key is let go.

        Callers are heard side by side, so one that says nothing keeps nobody waiting.
        """
        until = time.monotonic() + self.timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            heard: dict[socket.socket, bytes] = {}
            try:
                while expected:
                    if self._closed:
                        raise OSError("the job has ended")
                    left = until - time.monotonic()
                    if left <= 0:
                        raise TimeoutError(f"no call from rank {min(expected)[1]}")
                    for key, _ in selector.select(min(left, _LOOK_S)):
                        if key.fileobj is self._listener:
                            self._take_call(selector, heard)
                        elif isinstance(key.fileobj, socket.socket):
                            self._hear(selector, key.fileobj, heard, expected, made)
            finally:
                for caller in heard:
                    caller.close()

    def _take_call(
        self, selector: selectors.BaseSelector, heard: dict[socket.socket, bytes]
    ) -> None:
        """Accept a caller; of too many, the one that has waited longest is let go."""
        caller, _ = self._listener.accept()
        caller.setblocking(False)
        if len(heard) >= _MOST_CALLERS:
            oldest = next(iter(heard))
            selector.unregister(oldest)
            del heard[oldest]
            oldest.close()
        heard[caller] = b""
        selector.register(caller, selectors.EVENT_READ)

    def _hear(
        self,
        selector: selectors.BaseSelector,
        caller: socket.socket,
        heard: dict[socket.socket, bytes],
        expected: set[tuple[int, int, int]],
        made: dict[tuple[int, int, int], socket.socket],
    ) -> None:
        """Some of a greeting; a whole one makes a connection, or ends the call."""
        try:
            came = caller.recv(_HELLO.size - len(heard[caller]))
        except OSError:
            came = b""
        heard[caller] += came
        if came and len(heard[caller]) < _HELLO.size:
            return
        selector.unregister(caller)
        name = self._name_in(heard.pop(caller))
        if name not in expected:
            caller.close()
            return
        self._prepare(caller)
        expected.discard(name)
        made[name] = caller

    def _name_in(self, hello: bytes) -> tuple[int, int, int] | None:
        """The connection that a caller asks for; None where it isn't one of this series."""
        if len(hello) != _HELLO.size:
            return None
        key, series, purpose, source, to = _HELLO.unpack(hello)
        if not secrets.compare_digest(key, self._key) or series != self.series:
            return None
        return purpose, source, to

    def has_ended(self) -> bool:
        """Tell whether the other end of a connection has closed it. Nothing may go on over them."""
        with self._lock, selectors.DefaultSelector() as selector:
            for connection in self._open:
                selector.register(connection, selectors.EVENT_READ)
            for key, _ in selector.select(0):
                try:
                    assert isinstance(key.fileobj, socket.socket)
                    if not key.fileobj.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
                        return True
                except OSError:
                    return True
        return False

    def disconnect(self) -> None:
        """Close the connections, not the listener."""
        with self._lock:  # another thread may do the same
            opened, self._open = self._open, []
        for connection in opened:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)  # whoever waits on it wakes up
            connection.close()

    def close(self) -> None:
        """Close everything, and what another thread is about to open. Closing twice is fine."""
        with self._lock:
            self._closed = True
        self.disconnect()
        self._listener.close()


def receive(connection: socket.socket, size: int) -> bytes:
    """So many bytes; ConnectionError when it ends before."""
    data = bytearray(size)
    receive_into(connection, memoryview(data))
    return bytes(data)


def receive_into(connection: socket.socket, view: memoryview) -> None:
    """Fill the view; ConnectionError when the connection ends before."""
    while len(view):
        came = connection.recv_into(view)
        if not came:
            raise ConnectionError("a rank closed its connection")
        view = view[came:]
