"""Rank 0's part in collectives that don't wait: who takes part, when to go, whose values count.

Each rank says when it has its values, and the coordinator says when to go. Ranks that are late take
part as relays. Where a stated time of silence is allowed, a rank whose process has died, or hasn't
answered for so long, is out: the others stop their transfers, tell how far they are, plan anew
without it, and do again what some of them hadn't finished. Where one of them has the sum of that
collective, it gives it to the others. A rank that was out and answers again gets the sums that it
missed, and is a member of the next plan.
"""

from __future__ import annotations

import pickle
import selectors
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from enum import Enum, auto
from typing import Any

import numpy as np
import numpy.typing as npt

from mltcp_tools.collectives.adaptive.coordinator import Costs
from mltcp_tools.collectives.adaptive.words import NOBODY, Message, Word, hear, mask_of, send

MOST_BEHIND = 8
"""Collectives; ranks that are further behind are waited for, and their old gradients not used."""

KEPT_BYTES = 512_000_000
"""Of sums, kept for ranks that are out; one that has missed more can't come back."""

_SLOWEST_RATE = 125_000  # bytes/s at which a rank that returned takes its sums at least
_LEAST_SILENCE_S = 1.0  # a busy host may need as long to let a process answer
_ASKS = 4  # in the time of silence that is allowed
_MOST_FAILURES = 3  # plans in a row that came to nothing
_HISTORY = 16  # collectives remembered that were said to go: ranks differ by one at most

Array = npt.NDArray[np.float32]


class Ended(Exception):
    """The collectives are over, and why."""


class _Phase(Enum):
    RUNNING = auto()
    STOPPING = auto()  # until all members are quiet
    PLANNING = auto()  # until all members are connected


class Kept:
    """Sums for ranks that are out; used by two threads."""

    def __init__(self) -> None:
        self._sums: dict[int, tuple[int, Array]] = {}
        self._lock = threading.Lock()
        self.wanted = False

    def add(self, number: int, ranks: int, array: Array) -> None:
        """Keep a sum; ranks: of how many it is."""
        if self.wanted:
            with self._lock:
                self._sums[number] = ranks, array.copy()

    def get(self, number: int) -> tuple[int, Array] | None:
        """Of how many ranks, and the sum of a collective; None where it isn't here."""
        with self._lock:
            return self._sums.get(number)

    def bytes(self) -> int:
        """Of all sums."""
        with self._lock:
            return sum(array.nbytes for _, array in self._sums.values())

    def clear(self) -> None:
        """Nobody needs them any more."""
        with self._lock:
            self._sums.clear()
            self.wanted = False


class Coordinator(threading.Thread):
    """Decides from the messages of all ranks, rank 0's own among them.

    silent_s: seconds without an answer after which a rank is out, or far behind without values;
    None for never, and a rank that is gone ends it for all. late: ranks' values that came late.
    """

    def __init__(
        self, connections: dict[int, socket.socket], world: int, silent_s: float | None
    ) -> None:
        super().__init__(daemon=True)
        self._connections, self._silent_s = dict(connections), silent_s
        self._answers_s = None if silent_s is None else max(silent_s, _LEAST_SILENCE_S)
        now = time.monotonic()
        self._ready_heard_s = [now] * world
        self._heard_s = [now] * world
        self._ready_s: dict[int, dict[int, float]] = {}  # collective: rank: when it was ready
        self._bytes: dict[int, int] = {}
        self._next = [0] * world  # of each rank, the first collective that it isn't ready for
        self._going = 0
        self._went: dict[int, Message] = {}  # what was said last to have a collective go
        self._done: set[int] = set()  # ranks that only relay until all are done
        self.members = set(range(world))
        self._out: dict[int, int] = {}  # rank: the first collective whose sum may differ from its
        self._back: dict[int, int] = {}  # rank that was out: collectives that it has finished
        self._epoch, self._phase = 0, _Phase.RUNNING
        self._answers: dict[int, int] = {}
        self._told: dict[int, bytes] = {}
        self._redone: tuple[int, int] = 0, NOBODY  # first collective to do again, who has its sum
        self._failures = 0
        self._gone: dict[int, str] = {}  # ranks to take out, and why
        self.kept = Kept()
        self.whole_s: dict[int, float] = {}  # by bytes, what the fastest so far took
        self.late = 0

    def note(self, size: int, seconds: float) -> None:
        """What a collective of so many bytes took."""
        self.whole_s[size] = min(seconds, self.whole_s.get(size, seconds))

    def run(self) -> None:
        """Until it is over; then all connections are closed, and every rank learns of it."""
        try:
            with selectors.DefaultSelector() as self._selector:
                for rank, connection in self._connections.items():
                    if self._answers_s is not None:
                        connection.settimeout(self._answers_s)  # it may stop amid a message
                    self._selector.register(connection, selectors.EVENT_READ, rank)
                self._run()
        except Ended as ended:
            over = Message(Word.OVER, payload=str(ended).encode())
            if str(ended):
                self._tell(set(self._connections), over)
        finally:
            for connection in self._connections.values():
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def _run(self) -> None:
        asked_s = time.monotonic()
        while True:
            left_s = self._go_where_due()
            if self._answers_s is not None:
                pause_s = self._answers_s / _ASKS
                left_s = pause_s if left_s is None else min(left_s, pause_s)
            for key, _ in self._selector.select(left_s):
                if key.data in self._connections:
                    self._hear(key.data, self._connections[key.data])
            if self._answers_s is not None and time.monotonic() - asked_s >= pause_s:
                # A coordinator that was held up itself can't tell who else was silent.
                forgiving = time.monotonic() - asked_s > 2 * pause_s
                asked_s = time.monotonic()
                self._ask(forgiving)
            self._take_out()

    # Hearing.

    def _hear(self, rank: int, connection: socket.socket) -> None:
        try:
            message = hear(connection)
        except OSError:
            self._gone[rank] = "its connection ended"
            return
        self._heard_s[rank] = time.monotonic()
        if message.word is Word.READY:
            self._note_ready(rank, message)
        elif message.word is Word.BYE:
            self._done.add(rank)
        elif message.word is Word.BACK and rank in self._out:
            self._back[rank] = message.number
        elif message.epoch == self._epoch and rank in self.members:
            self._hear_member(rank, message)

    def _note_ready(self, rank: int, message: Message) -> None:
        number, size = message.number, message.size
        if self._bytes.setdefault(number, size) != size or number != self._next[rank]:
            raise Ended("Ranks asked for different collectives.")
        self._next[rank] = number + 1
        self._ready_heard_s[rank] = time.monotonic()
        if number >= self._going:
            self._ready_s.setdefault(number, {})[rank] = self._ready_heard_s[rank]

    def _hear_member(self, rank: int, message: Message) -> None:
        if message.word is Word.FAILED:
            if self._silent_s is None:
                raise Ended(f"Rank {rank}: {message.payload.decode()}")
            self._failures += 1
            if self._failures > _MOST_FAILURES:
                raise Ended(f"Plans failed again and again, at last: {message.payload.decode()}")
            self._stop()
        elif message.word is Word.TELL:
            self._told[rank] = message.payload
            if self._told.keys() == self.members:
                told = pickle.dumps([self._told[each] for each in sorted(self.members)])
                self._told = {}
                self._tell(self.members, Message(Word.TOLD, self._epoch, payload=told))
        elif message.word is Word.QUIET and self._phase is _Phase.STOPPING:
            self._answers[rank] = message.number
            if self._answers.keys() == self.members:
                self._plan()
        elif message.word is Word.CONNECTED and self._phase is _Phase.PLANNING:
            self._answers[rank] = message.number
            if self._answers.keys() == self.members:
                self._resume()

    def _tell(self, ranks: set[int], message: Message) -> None:
        for rank in sorted(ranks):
            with self._noting(rank):
                send(self._connections[rank], message)

    @contextmanager
    def _noting(self, rank: int) -> Iterator[None]:
        """A rank that can't be spoken to is taken out, later: others are being spoken to."""
        try:
            yield
        except OSError:
            self._gone.setdefault(rank, "its connection ended")

    # Going.

    def _go_where_due(self) -> float | None:
        """Say go as often as it is time to; seconds until the next time, None without any."""
        while self._phase is _Phase.RUNNING and not self._gone:
            if self.members <= self._done:
                self._tell(self.members, Message(Word.END))
                raise Ended
            if self._back:
                self._take_back()
                continue
            known = self._ready_s.get(self._going, {})
            ready = {rank: known[rank] for rank in known.keys() & self.members}
            if len(ready) < min(2, len(self.members - self._done)):
                return None
            left = self._left_s(ready)
            if left is None or left > 0:
                return left
            self._go(ready)
        return 0.0 if self._gone else None

    def _left_s(self, ready: dict[int, float]) -> float | None:
        """Seconds that waiting is still worth its while; None: until another rank comes."""
        if self.members <= set(ready) | self._done:
            return 0.0
        whole_s = self.whole_s.get(self._bytes[self._going])
        if whole_s is None:
            return None
        awaited_s = [
            self._ready_heard_s[rank]
            for rank in self.members - self._done
            if self._going - self._next[rank] >= MOST_BEHIND
        ]
        if awaited_s:
            if self._silent_s is None:
                return None
            left_s = max(awaited_s) + self._silent_s - time.monotonic()
            if left_s > 0:
                return left_s
        price = max(0.0, Costs(whole_s, len(self.members)).buy_s(len(ready)))
        return min(ready.values()) + price - time.monotonic()

    def _go(self, ready: dict[int, float]) -> None:
        number, size, mask = self._going, self._bytes[self._going], mask_of(set(ready))
        self.late += len(self.members) - len(ready)
        go = Message(Word.GO, self._epoch, number, size, mask, ranks=len(self.members))
        self._went[number] = go
        self._went.pop(number - _HISTORY, None)
        self._bytes.pop(number - _HISTORY, None)
        self._ready_s.pop(number)
        self._going += 1
        self._failures = 0
        self._tell(self.members, go)
        if self.kept.bytes() > KEPT_BYTES:
            self._forget_out()

    # Members.

    def _ask(self, forgiving: bool) -> None:
        """Ask the members whether they are there; who has been silent for too long is gone."""
        assert self._answers_s is not None
        now = time.monotonic()
        for rank in self.members - {0}:
            if forgiving:
                self._heard_s[rank] = max(self._heard_s[rank], now - self._answers_s / 2)
            elif now - self._heard_s[rank] > self._answers_s:
                self._gone.setdefault(rank, "")
        self._tell(self.members - {0}, Message(Word.ASK))

    def _take_out(self) -> None:
        """Go on without those that are gone; without a time of silence that ends it for all."""
        while self._gone:
            rank, why = self._gone.popitem()
            was_member = rank in self.members
            self.members.discard(rank)
            self._back.pop(rank, None)
            if why:
                self._out.pop(rank, None)
                self._selector.unregister(self._connections[rank])
                self._connections.pop(rank).close()
            if rank == 0 or (was_member and self._silent_s is None):
                raise Ended(f"Rank {rank} is gone.")
            if not was_member:
                continue
            if not why:
                self._out[rank] = self._going  # until all are quiet, and more is known
                self.kept.wanted = True
                self._tell({rank}, Message(Word.OUT, self._epoch + 1))
            self._stop()

    def _stop(self) -> None:
        self._epoch += 1
        self._phase = _Phase.STOPPING
        self._answers, self._told = {}, {}
        self._tell(self.members, Message(Word.STOP, self._epoch, mask=mask_of(self.members)))

    def _plan(self) -> None:
        """All members are quiet: bring those that returned up to date, and have all connect."""
        finished = {rank: n for rank, n in self._answers.items() if rank not in self._back}
        first, last = min(finished.values()), max(finished.values())
        if last > first + 1:
            raise Ended("Ranks are more than one collective apart, which can't be.")
        # It has to be one of those that stayed, for their sums go on to those that come back.
        giver = next((rank for rank in sorted(finished) if finished[rank] > first), NOBODY)
        self._redone = first, giver
        for rank, since in self._out.items():
            # What a rank finished that the others do again may be another sum than theirs.
            self._out[rank] = min(since, first + (giver != NOBODY))
        for rank in sorted(self._back):
            with self._noting(rank):
                for number in range(self._answers[rank], first):
                    self._give(rank, number)
        self._back.clear()
        if not self._out:
            self.kept.clear()
        self._phase, self._answers = _Phase.PLANNING, {}
        self._tell(self.members, Message(Word.PLAN, self._epoch, mask=mask_of(self.members)))

    def _give(self, rank: int, number: int) -> None:
        kept = self.kept.get(number)
        if kept is None:
            raise OSError("the sum is no longer here")
        ranks, array = kept
        payload = array.tobytes()
        connection = self._connections[rank]
        assert self._answers_s is not None
        connection.settimeout(self._answers_s + len(payload) / _SLOWEST_RATE)
        send(connection, Message(Word.SUM, 0, number, ranks=ranks, payload=payload))
        connection.settimeout(self._answers_s)

    def _resume(self) -> None:
        """All are connected: go on with what some haven't finished."""
        self._phase = _Phase.RUNNING
        first, giver = self._redone
        for number in range(first, self._going):
            given = giver != NOBODY and number == first
            # A sum that is given is that of the members then.
            ranks = self._went[number].ranks if given else len(self.members)
            go = replace(
                self._went[number],
                epoch=self._epoch,
                giver=giver if given else NOBODY,
                ranks=ranks,
            )
            self._went[number] = go
            self._tell(self.members, go)

    def _take_back(self) -> None:
        """Have the ranks that have returned as members again, where that can be."""
        for rank, finished in list(self._back.items()):
            since = self._out.pop(rank)
            missed = range(finished, self._going - 1)
            if finished > since or any(self.kept.get(number) is None for number in missed):
                del self._back[rank]
                self._refuse(rank)
            else:
                self.members.add(rank)
                self._heard_s[rank] = self._ready_heard_s[rank] = time.monotonic()
        if self._back:
            self._stop()

    def _forget_out(self) -> None:
        for rank in list(self._out):
            self._refuse(rank)
        self._out.clear()
        self._back.clear()
        self.kept.clear()

    def _refuse(self, rank: int) -> None:
        why = f"Rank {rank} was out for too long to come back; start the training again."
        self._tell({rank}, Message(Word.REFUSED, payload=why.encode()))


def told(message: Message) -> Sequence[Any]:
    """What the members said, from a message TOLD."""
    return [pickle.loads(each) for each in pickle.loads(message.payload)]
