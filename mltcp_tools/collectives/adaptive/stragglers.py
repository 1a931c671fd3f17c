"""Collectives that don't wait for stragglers longer than that is worth.

Rank 0 coordinates (coordination.py). Late ranks take part all the same, as relays, by threads of
their own and with zeros: the trees stay whole. What a late rank had is added to its values of the
same size next time, so nothing is lost, only late (a gradient one step old, for that rank's share
of the batch). Ranks that are MOST_BEHIND collectives behind are waited for, unless they have been
silent for a stated time: these are out, and the others go on. One that returns gets all the sums in
their order, and is waited for again; what it had for collectives that were over when it came is
dropped, for its gradients would be older than anybody else's.
"""

from __future__ import annotations

import pickle
import queue
import socket
import threading
import time
import warnings
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from mltcp_tools.collectives.adaptive.coordination import MOST_BEHIND, Array, Coordinator, told
from mltcp_tools.collectives.adaptive.mesh import Mesh
from mltcp_tools.collectives.adaptive.session import AdaptiveSession
from mltcp_tools.collectives.adaptive.words import NOBODY, Message, Word, hear, ranks_of, send
from mltcp_tools.collectives.session import SessionError

MOST_RANKS = 64


class LeftBehind(SessionError):
    """This rank was out for too long; the others go on without it."""


@dataclass(frozen=True)
class _Result:
    """Of a collective. counted: this rank's values are in it. ranks: how many were members."""

    counted: bool
    array: Array
    ranks: int


class StragglerSession:
    """Sums of float32 arrays over an AdaptiveSession's trees, with late ranks' values put off.

    late: collectives that this rank was late for. dropped: of these, those whose values no sum will
    have. members: the ranks that take part now.
    """

    def __init__(
        self, control: Mesh, session: AdaptiveSession, silent_s: float | None = None
    ) -> None:
        """control: a mesh of its own, as a session drops the connections of its mesh to plan.

        silent_s: after which a rank that is MOST_BEHIND, or whose process doesn't answer, is out;
        its results wait for it in memory.
        """
        self._session, self._control, self._rank = session, control, control.rank
        self._goes_on = silent_s is not None
        if control.world > MOST_RANKS:
            raise SessionError(
                f"Going on without late ranks is for {MOST_RANKS} ranks at most, not"
                f" {control.world}; leave out `stragglers`."
            )
        session.gather = self._gather
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
            if silent_s is not None:  # rank 0 asks several times in this time
                self._out.settimeout(max(control.timeout_s, 2 * silent_s))
        self.members = list(range(control.world))
        self.late = self.dropped = 0
        self._number = 0  # of the next collective that is asked for
        self._finished = self._newest = self._epoch = 0
        self._last: Array = np.empty(0, dtype=np.float32)
        self._error = SessionError("A rank is gone, and the trees with it.")
        self._put_off: dict[int, Array] = {}
        self._mine: dict[int, Array] = {}
        self._lock, self._saying = threading.Lock(), threading.Lock()
        self._results: queue.SimpleQueue[_Result | None] = queue.SimpleQueue()
        self._words: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._deferred: deque[Message] = deque()
        self._threads = [
            threading.Thread(target=work, daemon=True) for work in (self._listen, self._take_part)
        ]
        for thread in self._threads:
            thread.start()

    def reduce(self, array: Array) -> int:
        """Sum a flat float32 array in place, as far as other ranks have theirs in time.

        Returns of how many ranks the sum is, those that were late among them. Raises SessionError.
        """
        number, size = self._number, array.nbytes
        self._number += 1
        mine = array.copy()
        put_off = self._put_off.pop(size, None)
        if put_off is not None:
            mine += put_off
        with self._lock:
            self._mine[number] = mine
        try:
            self._say(Message(Word.READY, number=number, size=size))
        except OSError:
            raise self._error from None
        found = self._results.get()
        if found is None:
            self._results.put(None)
            raise self._error
        if not found.counted:
            self.late += 1
            if self._newest - number < MOST_BEHIND:
                self._put_off[size] = mine
            else:
                self.dropped += 1
        array[:] = found.array
        return found.ranks

    def _say(self, message: Message) -> None:
        with self._saying:
            send(self._out, message)

    # The thread that listens.

    def _listen(self) -> None:
        """Answer at once what can be, hand on the rest, and stop transfers that can't end."""
        try:
            while True:
                message = hear(self._out)
                if message.word is Word.ASK:
                    self._say(Message(Word.HERE))
                    continue
                if message.word in (Word.STOP, Word.OUT):
                    self._session.interrupt(message.epoch)
                elif message.word is Word.REFUSED:
                    self._error = LeftBehind(message.payload.decode())
                    break
                elif message.word is Word.OVER:
                    self._error = SessionError(message.payload.decode())
                    break
                self._words.put(message)
                if message.word is Word.END:
                    return
        except TimeoutError:
            self._error = SessionError("Rank 0, which coordinates, doesn't answer.")
        except OSError:
            self._error = SessionError("Rank 0, which coordinates, is gone.")
        self._words.put(None)
        self._session.close()

    # The thread that takes part.

    def _next_word(self) -> Message:
        message = self._words.get()
        if message is None:
            raise self._error
        return message

    def _take_part(self) -> None:
        try:
            while True:
                message = self._deferred.popleft() if self._deferred else self._next_word()
                if message.word is Word.END:
                    return
                self._do(message)
        except (OSError, SessionError) as error:
            if isinstance(error, SessionError) and not self._goes_on:
                self._error = error
            self._results.put(None)
            self.close()

    def _do(self, message: Message) -> None:
        """What the coordinator said; GO and PLAN of former members are void."""
        if message.word is Word.GO and message.epoch == self._epoch:
            self._collective(message)
        elif message.word is Word.STOP:
            self._epoch = message.epoch
            self._say(Message(Word.QUIET, message.epoch, self._finished))
        elif message.word is Word.PLAN and message.epoch == self._epoch:
            self._plan(message)
        elif message.word is Word.OUT:
            self._say(Message(Word.BACK, number=self._finished))
        elif message.word is Word.SUM and message.number == self._finished:
            array = np.frombuffer(message.payload, dtype=np.float32)
            self._finish(message, array, counted=False)

    def _plan(self, message: Message) -> None:
        members = ranks_of(message.mask)
        if self._rank == 0:
            _tell_of_change(self.members, members)
        self.members = members
        try:
            self._session.plan(members, message.epoch)
        except SessionError as error:
            self._fail(error)
        else:
            self._say(Message(Word.CONNECTED, message.epoch))

    def _fail(self, error: SessionError) -> None:
        """Told to the coordinator, which stops all; without a way to go on it ends here, too."""
        if not self._goes_on:
            raise error
        self._say(Message(Word.FAILED, self._epoch, payload=str(error).encode()))

    def _collective(self, go: Message) -> None:
        """Go, with this rank's values, or none, or the sum that others lack."""
        self._newest = max(self._newest, go.number)
        counted = bool(go.mask >> self._rank & 1)
        with self._lock:
            mine = self._mine.get(go.number)
        if go.giver == self._rank:
            array = self._last.copy()
        elif go.giver != NOBODY:
            array = np.full(go.size // 4, -0.0, dtype=np.float32)  # adds nothing to any value
        elif counted and mine is not None:
            array = mine.copy()
        else:
            array = np.zeros(go.size // 4, dtype=np.float32)
        begin = time.monotonic()
        try:
            self._session.reduce(array)
        except SessionError as error:
            self._fail(error)
            return
        if self.coordinator:
            self.coordinator.note(go.size, time.monotonic() - begin)
        if go.number == self._finished:
            self._finish(go, array, counted)
        self._session.look()

    def _finish(self, message: Message, array: Array, counted: bool) -> None:
        self._finished, self._last = message.number + 1, array
        self._newest = max(self._newest, message.number)
        if self.coordinator:
            self.coordinator.kept.add(message.number, message.ranks, array)
        with self._lock:
            self._mine.pop(message.number, None)
        self._results.put(_Result(counted, array, message.ranks))

    def _gather(self, what: Any) -> list[Any]:
        """What all members say, by way of the coordinator; for the session, in this thread."""
        self._say(Message(Word.TELL, self._epoch, payload=pickle.dumps(what)))
        while True:
            message = self._next_word()
            if message.word is Word.TOLD:
                if message.epoch == self._epoch:
                    return list(told(message))
                continue
            self._deferred.append(message)
            if message.word in (Word.STOP, Word.OUT, Word.END):
                raise SessionError("The ranks that take part have changed.")

    # The end.

    def put_off(self) -> dict[int, Array]:
        """By their bytes, the values of this rank that no sum has yet."""
        return dict(self._put_off)

    def leave(self, seconds: float) -> None:
        """End together with all others: until they are done, at most so long, this one relays."""
        with suppress(OSError):
            self._say(Message(Word.BYE))
            for thread in self._threads:
                thread.join(seconds)
        self.close()

    def close(self) -> None:
        """End; others' collectives fail. Closing twice is fine."""
        self._session.close()
        self._control.close()
        with suppress(OSError):
            self._out.shutdown(socket.SHUT_RDWR)


def _tell_of_change(before: list[int], after: list[int]) -> None:
    """A warning, at rank 0, of ranks that are out or have returned."""
    out, back = sorted(set(before) - set(after)), sorted(set(after) - set(before))
    parts = [f"rank {rank} is out, the others go on" for rank in out]
    parts += [f"rank {rank} has returned" for rank in back]
    if parts:
        warnings.warn(f"Collectives: {'; '.join(parts)}.", RuntimeWarning, stacklevel=2)
