# SPDX-License-Identifier: BSD-2-Clause
"""All-reduces along the trees of a strategy, over TCP, chunk after chunk."""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from mltcp_tools.collectives.adaptive.choice import SOONER, Choice, trials
from mltcp_tools.collectives.adaptive.links import Links, ring_s
from mltcp_tools.collectives.adaptive.mesh import Gather, Mesh, receive_into
from mltcp_tools.collectives.adaptive.probe import measure
from mltcp_tools.collectives.adaptive.strategy import Strategy, find_strategy
from mltcp_tools.collectives.adaptive.trees import Tree
from mltcp_tools.collectives.session import SessionError

CHUNK_S = 0.004
"""Of the planned time of a chunk: short, for each hop begins when a chunk has come whole."""

LEAST_CHUNK_BYTES, MOST_CHUNK_BYTES = 8_192, 65_536
TRIAL_BYTES = 1_000_000
"""Of the array by which that is tried when a plan is made."""

_LOOK_S, _MOST_LOOK_S = 0.25, 4.0
"""Of reductions between looks at how long they took, and one reduction at least."""

_LOOKING_SHARE = 0.01
"""Of the time, that looks take at most within these: beside another job, the few packets by which
ranks agree wait behind its packets, or are lost."""

MOST_UNLOOKED = 64
"""Reductions between looks."""

WATCHED_BYTES = 500_000
"""Smaller arrays take their time for other reasons than the links' rates."""

Array = npt.NDArray[Any]


class AdaptiveSession:
    """Sums of arrays along trees chosen for the links as they were measured.

    All ranks make one, and call `reduce` with arrays of equal size and type. Every rank gets the
    same bits: a root's sum goes to all.

    gather: told what this rank says, it returns what all ranks say, in their order. ring: sums an
    array of all ranks in place, where no trees promise to be sooner; None for trees always.
    plan_bytes: of the array that the plan is made for.
    """

    def __init__(
        self,
        mesh: Mesh,
        gather: Gather,
        *,
        ring: Callable[[Array], None] | None = None,
        plan_bytes: int = 10_000_000,
    ) -> None:
        self.mesh, self.gather, self._ring = mesh, gather, ring
        self._plan_bytes = plan_bytes
        self.choice = Choice(ring is not None)
        self.plans = 0
        self._error: SessionError | None = None  # of the last look
        try:
            self._plan(with_trial=True)
        except BaseException:
            mesh.close()
            raise

    def _plan(self, with_trial: bool) -> None:
        """Measure, have the first rank choose the trees, and connect along them.

        with_trial: whether trees are tried here, rather than by the next reductions.
        """
        self._drop_trees()
        self.mesh.series += 1
        begin = time.monotonic()
        links = measure(self.mesh, self.gather)
        strategy, promising = self._find(links)
        if promising and self._ring:
            # Another job's burst looks like a slow link, but hardly twice at the same one.
            links = links.at_best(measure(self.mesh, self.gather))
            strategy, promising = self._find(links)
        self.strategy = strategy
        pace = strategy.seconds / self._plan_bytes
        self._paces = dict.fromkeys((False, True), pace)  # as last seen
        per_s = 1 / pace if pace else np.inf
        self._chunk_bytes = int(np.clip(CHUNK_S * per_s, LEAST_CHUNK_BYTES, MOST_CHUNK_BYTES))
        self._unlooked: list[tuple[int, float]] = []  # bytes and seconds
        self._looking_s, self._until_look_s = 0.0, _LOOK_S
        self.plans += 1
        if promising:
            self._connect(strategy)
            if with_trial and self._ring:
                promising = self._trees_are_sooner(self._ring)
                if not promising:
                    self._drop_trees()
        began, ended = self.gather([begin, time.monotonic()])[0]
        self.choice.planned(ended, ended - began, promising, tried=with_trial)
        self._is_due = False  # where anything before this fails, the next reduction plans again

    def _find(self, links: Links) -> tuple[Strategy, bool]:
        """Trees for the links, and whether they promise to be worth it."""
        chosen = None
        if self.mesh.rank == 0:
            strategy = find_strategy(links, self._plan_bytes)
            by_ring_s = ring_s(links, self._plan_bytes)
            promising = self._ring is None or by_ring_s >= SOONER * strategy.seconds
            chosen = [asdict(strategy), promising]
        fields, promising = self.gather(chosen)[0]
        return Strategy.from_fields(fields), promising

    def _drop_trees(self) -> None:
        self._parts: list[_Part] = []
        self.mesh.disconnect()

    def _trees_are_sooner(self, ring: Callable[[Array], None]) -> bool:
        """Try whether they keep their promise: probes err, and hosts may be slower than links."""
        found = trials(by_trees=False, rounds=2)
        found.begin()
        while found.trying:
            array = np.zeros(TRIAL_BYTES // 4, dtype=np.float32)
            self.gather(None)
            begin = time.monotonic()
            (self._along_trees if found.ours else ring)(array)
            found.note(max(self.gather(time.monotonic() - begin)))
        return found.ours

    def _connect(self, strategy: Strategy) -> None:
        wanted = []
        for number, tree in enumerate(strategy.trees):
            for host in range(self.mesh.world):
                if host != tree.root:
                    wanted.append((2 * number, host, tree.gather[host]))
                    wanted.append((2 * number + 1, tree.spread[host], host))
        connections = self.mesh.connect(wanted)
        self._parts = [
            _Part(self.mesh.rank, tree, number, connections, self._chunk_bytes)
            for number, tree in enumerate(strategy.trees)
        ]

    def reduce(self, array: Array) -> None:
        """Sum a flat array in place. Then `look` is to be called.

        Raises SessionError; some ranks may have the sum then.
        """
        if self._error:
            raise self._error
        if self._is_due:
            self._plan(with_trial=False)
        begin = time.monotonic()
        if self._ring and not self.choice.by_trees:
            self._ring(array)
        else:
            self._along_trees(array)
        if array.nbytes >= WATCHED_BYTES:
            self._unlooked.append((array.nbytes, time.monotonic() - begin))

    def _along_trees(self, array: Array) -> None:
        if self.mesh.world > 1 and not self._parts:
            raise SessionError("There are no connections along trees, as planning failed.")
        ends = np.cumsum([0.0, *self.strategy.shares])
        places = np.round(ends / ends[-1] * array.size).astype(int)
        errors: list[Exception] = []
        threads: list[threading.Thread] = []
        for part, first, after in zip(self._parts, places, places[1:], strict=False):
            if after > first:
                threads += part.threads(array[first:after], errors, self.mesh.disconnect)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise SessionError(f"A transfer along a tree failed ({errors[0]}).")

    def look(self) -> None:
        """Now and then, agree on how long reductions take, and choose by that how to go on.

        All ranks call it after each reduction, as soon as its sum was handed on: what they say to
        each other may wait behind another job's packets. The next reduction raises what fails here.
        """
        sizes = np.array([each[0] for each in self._unlooked])
        until_s = _LOOK_S if self.choice.trying else self._until_look_s
        soon = sizes.sum() * self._paces[self.choice.by_trees] < until_s
        if not self._unlooked or (soon and len(sizes) < MOST_UNLOOKED):
            return
        try:
            self._agree(sizes)
        except (SessionError, RuntimeError) as error:
            self._error = SessionError(f"Ranks could not agree on how to go on ({error}).")

    def _agree(self, sizes: npt.NDArray[np.int64]) -> None:
        begin = time.monotonic()
        told = self.gather([[each[1] for each in self._unlooked], begin, self._looking_s])
        self._looking_s = time.monotonic() - begin
        self._unlooked.clear()
        looking_s = min(each[2] for each in told)  # the last time, of the last rank to come
        self._until_look_s = float(np.clip(looking_s / _LOOKING_SHARE, _LOOK_S, _MOST_LOOK_S))
        # The last rank to come waited for nobody.
        took = np.min([each[0] for each in told], axis=0)
        pace = self._paces[self.choice.by_trees] = float(took.sum() / sizes.sum())
        self._is_due = self.choice.look(pace, float((took / sizes).min()), told[0][1])
        if self._parts and not self.choice.has_trees:
            self._drop_trees()

    def close(self) -> None:
        """Close the connections; others' reductions fail. Closing twice is fine."""
        self.mesh.close()


class _Part:
    """One host in one tree: its connections towards the root, and away from it."""

    def __init__(
        self,
        host: int,
        tree: Tree,
        number: int,
        connections: dict[tuple[int, int, int], socket.socket],
        chunk_bytes: int,
    ) -> None:
        self._chunk_bytes = chunk_bytes
        up, down = 2 * number, 2 * number + 1
        others = [other for other in range(len(tree.gather)) if other != tree.root]
        self.is_root = host == tree.root
        self.below = [connections[(up, o, host)] for o in others if tree.gather[o] == host]
        self.above = None if self.is_root else connections[(up, host, tree.gather[host])]
        self.source = None if self.is_root else connections[(down, tree.spread[host], host)]
        self.targets = [connections[(down, host, o)] for o in others if tree.spread[o] == host]

    def threads(
        self, array: Array, errors: list[Exception], abort: Callable[[], None]
    ) -> list[threading.Thread]:
        """Two for the array: partial sums up, the sum down. abort: called where one fails."""
        summed: queue.SimpleQueue[Array | None] = queue.SimpleQueue()

        def guarded(work: Callable[[Array, queue.SimpleQueue[Array | None]], None]) -> None:
            try:
                work(array, summed)
            except Exception as error:
                errors.append(error)
                summed.put(None)
                abort()

        return [threading.Thread(target=guarded, args=(work,)) for work in (self._up, self._down)]

    def _up(self, array: Array, summed: queue.SimpleQueue[Array | None]) -> None:
        step = max(1, self._chunk_bytes // array.itemsize)
        other = np.empty(step, dtype=array.dtype)
        for first in range(0, array.size, step):
            chunk = array[first : first + step]
            for connection in self.below:
                receive_into(connection, other[: chunk.size].data.cast("B"))
                chunk += other[: chunk.size]
            if self.above:
                self.above.sendall(chunk.data.cast("B"))
            else:
                summed.put(chunk)

    def _down(self, array: Array, summed: queue.SimpleQueue[Array | None]) -> None:
        step = max(1, self._chunk_bytes // array.itemsize)
        for first in range(0, array.size, step):
            if self.source is None:
                chunk = summed.get()
                if chunk is None:
                    return
            else:
                # What was here has gone up before its sum can come down.
                chunk = array[first : first + step]
                receive_into(self.source, chunk.data.cast("B"))
            for connection in self.targets:
                connection.sendall(chunk.data.cast("B"))
