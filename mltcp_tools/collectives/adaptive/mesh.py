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
_TCP_CONGESTION = 13

Gather = Callable[[Any], list[Any]]
"""Told what this rank says, it returns what all ranks say, in their order."""


class Mesh:
    """This rank's listener, and connections to the others as `connect` makes them.

    gather: for agreeing on addresses and a key. congestion_control: of the connections, such as
    mltcp; None for the host's default. series: of the connections made now, equal at all ranks that
    make them: calls of an earlier series, which was given up, are not taken for this one's.
    """

    def __init__(
        self,
        rank: int,
        world: int,
        address: str,
        gather: Gather,
        timeout_s: float,
        congestion_control: str | None = None,
    ) -> None:
        self.rank, self.world, self.timeout_s = rank, world, timeout_s
        self._congestion_control = congestion_control
        self._listener = socket.create_server((address, 0), backlog=1024)
        told = gather((address, self._listener.getsockname()[1], secrets.token_bytes(16)))
        self._key: bytes = told[0][2]
        self._addresses = [(each[0], each[1]) for each in told]
        self.series = 0
        self._first_series = 0  # those before have been given up
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()  # of the two above

    def connect(
        self, wanted: Iterable[tuple[int, int, int]]
    ) -> dict[tuple[int, int, int], socket.socket]:
        """Connections by (purpose, from, to), of those in which this rank is one end.

        All ranks in the list call it with the same list. The rank that sends connects. Raises
        SessionError.
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
                if self.series < self._first_series:
                    raise OSError("the ranks that take part have changed")
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
        if self._congestion_control:
            connection.setsockopt(
                socket.IPPROTO_TCP, _TCP_CONGESTION, self._congestion_control.encode()
            )

    def _answer(
        self, expected: set[tuple[int, int, int]], made: dict[tuple[int, int, int], socket.socket]
    ) -> None:
        """Take those expected into `made`; whoever doesn't know the key is let go."""
        until = time.monotonic() + self.timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            while expected:
                if self.series < self._first_series:
                    raise OSError("the ranks that take part have changed")
                left = until - time.monotonic()
                if left <= 0:
                    raise TimeoutError(f"no call from rank {min(expected)[1]}")
                if not selector.select(min(left, _LOOK_S)):
                    continue
                connection, _ = self._listener.accept()
                name = self._greeted(connection)
                if name not in expected:
                    connection.close()
                    continue
                expected.discard(name)
                made[name] = connection

    def _greeted(self, connection: socket.socket) -> tuple[int, int, int] | None:
        """What a caller calls for; None where it isn't one of this series."""
        try:
            self._prepare(connection)
            key, series, purpose, source, to = _HELLO.unpack(receive(connection, _HELLO.size))
        except OSError:
            return None
        if not secrets.compare_digest(key, self._key) or series != self.series:
            return None
        return purpose, source, to

    def give_up(self, before: int) -> None:
        """Disconnect, and let no connection of a series before `before` be made any more."""
        with self._lock:
            self._first_series = before
        self.disconnect()

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
        self.give_up(2**32)
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
