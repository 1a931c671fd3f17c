"""Collectives that don't wait for stragglers longer than that is worth.

Rank 0 hears from each rank when it has its values, and says when to go and whose values count.
Late ranks take part all the same, as relays, by a thread of their own and with zeros: the trees
stay whole. What a late rank had is added to its values of the same size next time, so nothing is
lost, only late (a gradient one step old, for that rank's share of the batch). Ranks that are
MOST_BEHIND collectives behind are waited for, unless they have been silent for a stated time: these
are out, and the others go on. One that returns gets all the sums in their order, and is waited for
again.
"""

from __future__ import annotations

import contextlib
import queue
import selectors
import socket
import struct
import threading
import time
from typing import Any

import numpy as np
import numpy.typing as npt

from mltcp_tools.collectives.adaptive.coordinator import Costs
from mltcp_tools.collectives.adaptive.mesh import Mesh, receive
from mltcp_tools.collectives.adaptive.session import AdaptiveSession
from mltcp_tools.collectives.session import SessionError

MOST_BEHIND = 8
_BYE = 2**64 - 1
_READY = struct.Struct("=QQ")  # the collective's number, its bytes of float32; BYE, 0
_GO = struct.Struct("=QQQd")  # number, bytes, bitmap of the ranks whose values count, seconds

Array = npt.NDArray[np.float32]


class Coordinator(threading.Thread):
    """Rank 0's: decides from the messages of all ranks, its own among them."""

    def __init__(
        self, connections: dict[int, socket.socket], world: int, silent_s: float | None
    ) -> None:
        """silent_s: seconds after which a rank that is far behind is out; None for never."""
        super().__init__(daemon=True)
        self._connections, self._world, self._silent_s = connections, world, silent_s
        self._heard_s = [time.monotonic()] * world
        self._ready_s: dict[int, dict[int, float]] = {}  # collective: rank: when it was ready
        self._bytes: dict[int, int] = {}
        self._next = [0] * world  # of each rank, the first collective that it isn't ready for
        self._going = 0
        self._gone: set[int] = set()  # ranks that are done, and only relay until all are
        self.whole_s: dict[int, float] = {}  # by bytes, what the fastest so far took
        self.late = 0

    def run(self) -> None:
        """Until a connection ends; then all of them are closed, and every rank learns of it."""
        try:
            with selectors.DefaultSelector() as selector:
                for rank, connection in self._connections.items():
                    selector.register(connection, selectors.EVENT_READ, rank)
                while True:
                    for key, _ in selector.select(self._go_where_due()):
                        self._hear(key.data, key.fileobj)
        except OSError:
            for connection in self._connections.values():
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def _hear(self, rank: int, connection: Any) -> None:
        number, size = _READY.unpack(receive(connection, _READY.size))
        if number == _BYE:
            self._gone.add(rank)
            return
        if self._bytes.setdefault(number, size) != size or number != self._next[rank]:
            raise OSError("ranks asked for different collectives")
        self._next[rank] = number + 1
        self._heard_s[rank] = time.monotonic()
        if number >= self._going:
            self._ready_s.setdefault(number, {})[rank] = self._heard_s[rank]

    def _go_where_due(self) -> float | None:
        """Say go as often as it is time to; seconds until the next time, None without any."""
        while True:
            if len(self._gone) == self._world:
                self._tell_all(_GO.pack(_BYE, 0, 0, 0.0))
                raise OSError("all ranks are done")
            ready = self._ready_s.get(self._going, {})
            if len(ready) < min(2, self._world - len(self._gone)):
                return None
            left = self._left_s(ready)
            if left is None or left > 0:
                return left
            self._go(ready)

    def _left_s(self, ready: dict[int, float]) -> float | None:
        """Seconds that waiting is still worth its while; None: until another rank comes."""
        if set(ready) | self._gone == set(range(self._world)):
            return 0.0
        whole_s = self.whole_s.get(self._bytes[self._going])
        if whole_s is None:
            return None
        awaited_s = [
            heard_s
            for rank, (after, heard_s) in enumerate(zip(self._next, self._heard_s, strict=True))
            if rank not in self._gone and self._going - after >= MOST_BEHIND
        ]
        if awaited_s:
            if self._silent_s is None:
                return None
            left_s = max(awaited_s) + self._silent_s - time.monotonic()
            if left_s > 0:
                return left_s
        price = max(0.0, Costs(whole_s, self._world).buy_s(len(ready)))
        return min(ready.values()) + price - time.monotonic()

    def _go(self, ready: dict[int, float]) -> None:
        mask = sum(1 << rank for rank in ready)
        size = self._bytes[self._going]
        self.late += self._world - len(ready)
        message = _GO.pack(self._going, size, mask, self.whole_s.get(size, 0.0))
        self._tell_all(message)
        self._ready_s.pop(self._going)
        self._going += 1

    def _tell_all(self, message: bytes) -> None:
        for connection in self._connections.values():
            connection.sendall(message)

    def note(self, size: int, seconds: float) -> None:
        """What a collective of so many bytes took."""
        self.whole_s[size] = min(seconds, self.whole_s.get(size, seconds))


class StragglerSession:
    """Sums of float32 arrays over an AdaptiveSession's trees, with late ranks' values put off.

    late: collectives that this rank was late for.
    """

    def __init__(
        self, control: Mesh, session: AdaptiveSession, silent_s: float | None = None
    ) -> None:
        """control: a mesh of its own, as a session drops the connections of its mesh to plan.

        silent_s: after which a rank that is MOST_BEHIND is out; its results wait for it in memory.
        """
        self._session, self._control, self._rank = session, control, control.rank
        made = control.connect([(0, rank, 0) for rank in range(1, control.world)])
        for connection in made.values():
            connection.settimeout(None)  # a go may be long in coming
        self.coordinator: Coordinator | None = None
        if self._rank == 0:
            self._out, end = socket.socketpair()
            heard = {0: end} | {name[1]: connection for name, connection in made.items()}
            self.coordinator = Coordinator(heard, control.world, silent_s)
            self.coordinator.start()
        else:
            self._out = made[(0, self._rank, 0)]
        self.late = 0
        self._number = 0
        self._put_off: dict[int, Array] = {}
        self._mine: dict[int, Array] = {}
        self._lock = threading.Lock()
        self._results: queue.SimpleQueue[tuple[bool, Array] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._take_part, daemon=True)
        self._thread.start()

    def reduce(self, array: Array) -> None:
        """Sum a flat float32 array in place, as far as other ranks have theirs in time."""
        number, size = self._number, array.nbytes
        self._number += 1
        mine = array.copy()
        put_off = self._put_off.pop(size, None)
        if put_off is not None:
            mine += put_off
        with self._lock:
            self._mine[number] = mine
        try:
            self._out.sendall(_READY.pack(number, size))
        except OSError as error:
            raise SessionError(f"Rank 0 doesn't listen any more ({error}).") from None
        found = self._results.get()
        if found is None:
            self._results.put(None)
            raise SessionError("A rank is gone, and the trees with it.")
        counted, result = found
        with self._lock:
            self._mine.pop(number, None)
        if not counted:
            self.late += 1
            self._put_off[size] = mine
        array[:] = result

    def _take_part(self) -> None:
        """Go when told to, with this rank's values or zeros."""
        try:
            while True:
                number, size, mask, _ = _GO.unpack(receive(self._out, _GO.size))
                if number == _BYE:
                    return
                counted = bool(mask >> self._rank & 1)
                with self._lock:
                    mine = self._mine.pop(number, None)
                array = np.zeros(size // 4, dtype=np.float32)
                if counted and mine is not None:
                    array[:] = mine
                begin = time.monotonic()
                self._session.reduce(array)
                if self.coordinator:
                    self.coordinator.note(size, time.monotonic() - begin)
                self._results.put((counted, array))
        except (OSError, SessionError):
            self._results.put(None)
            self.close()

    def put_off(self) -> dict[int, Array]:
        """By their bytes, the values of this rank that no sum has yet."""
        return dict(self._put_off)

    def leave(self, seconds: float) -> None:
        """End together with all others: until they are done, at most so long, this one relays."""
        with contextlib.suppress(OSError):
            self._out.sendall(_READY.pack(_BYE, 0))
            self._thread.join(seconds)
        self.close()

    def close(self) -> None:
        """End; others' collectives fail. Closing twice is fine."""
        self._session.close()
        self._control.close()
        with contextlib.suppress(OSError):
            self._out.shutdown(socket.SHUT_RDWR)
