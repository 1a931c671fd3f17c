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

from mltcp_tools.collectives.adaptive.links import Links, ring_s
from mltcp_tools.collectives.adaptive.mesh import Gather, Mesh, receive_into
from mltcp_tools.collectives.adaptive.probe import measure
from mltcp_tools.collectives.adaptive.strategy import Strategy, find_strategy
from mltcp_tools.collectives.adaptive.trees import Tree
from mltcp_tools.collectives.bounds import hosts_bound_s
from mltcp_tools.collectives.path_selection import Pause, Trials
from mltcp_tools.collectives.session import SessionError

SOONER = 1.1
"""A ring's time over the trees', from which these are worth more connections than a ring's."""

CHUNK_S = 0.004
"""Of the planned time of a chunk: short, for each hop begins when a chunk has come whole."""

LEAST_CHUNK_BYTES, MOST_CHUNK_BYTES = 8_192, 65_536
TRIAL_BYTES = 1_000_000
"""Of the array by which that is tried when a plan is made."""

LOOKED = 64
"""Reductions of a look, after which the ranks tell each other how long these took."""

CHANGED = 1.3
"""Times the best look since the plan, from which reductions have become slower."""

_LEAST_LOOKS, _MOST_LOOKS, _UNCHANGED = 4, 256, 8
"""Looks until the next plan where reductions have become slower, doubled after each plan that
changes nothing; and times as many where they haven't."""

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
        self.by_trees, self.plans = False, 0
        self._taken: tuple[Tree, ...] = ()
        self._pause = Pause(_LEAST_LOOKS, _MOST_LOOKS)
        self._error: SessionError | None = None  # of the last look
        try:
            self._plan()
        except BaseException:
            mesh.close()
            raise

    def _plan(self) -> None:
        """Measure the links, have the first rank choose trees, and try them against the ring."""
        before, self._taken = self._taken, ()
        self._drop_trees()
        self.mesh.series += 1
        links = measure(self.mesh, self.gather)
        strategy = self._find(links)
        if strategy and self._ring:
            # Another job's burst looks like a slow link, but hardly twice at the same one.
            links = links.at_best(measure(self.mesh, self.gather))
            strategy = self._find(links)
        self.by_trees = False
        if strategy:
            self._connect(strategy)
            self.by_trees = self._ring is None or self._trees_are_sooner(self._ring)
        if strategy and self.by_trees:
            self._taken = strategy.trees
        else:
            self._drop_trees()
        if self.plans:
            self._pause.tried(futile=before == self._taken)
        self.plans += 1
        self._unlooked: list[float] = []  # seconds per byte
        self._looks, self._best = 0, np.inf
        self._is_due = False  # where anything before this fails, the next reduction plans again

    def _find(self, links: Links) -> Strategy | None:
        """Trees for the links; None where they don't promise to be worth it."""
        chosen = None
        if self.mesh.rank == 0:
            size, by_ring_s = self._plan_bytes, ring_s(links, self._plan_bytes)
            least_s = hosts_bound_s(np.maximum(links.up, links.down).tolist(), size)
            if self._ring is None or by_ring_s >= SOONER * least_s:
                strategy = find_strategy(links, size)
                if self._ring is None or by_ring_s >= SOONER * strategy.seconds:
                    chosen = asdict(strategy)
        fields = self.gather(chosen)[0]
        return Strategy.from_fields(fields) if fields else None

    def _drop_trees(self) -> None:
        self._parts: list[_Part] = []
        self.mesh.disconnect()

    def _trees_are_sooner(self, ring: Callable[[Array], None]) -> bool:
        """Try whether they keep their promise: probes err, and hosts may be slower than links."""
        found = Trials(False, rounds=2, sooner=SOONER, pause=Pause(1, 1))
        found.begin()
        while found.trying:
            array = np.zeros(TRIAL_BYTES // 4, dtype=np.float32)
            self.gather(None)
            begin = time.monotonic()
            (self._along_trees if found.ours else ring)(array)
            found.note(max(self.gather(time.monotonic() - begin)))
        return found.ours

    def _connect(self, strategy: Strategy) -> None:
        per_s = self._plan_bytes / strategy.seconds if strategy.seconds else np.inf
        chunk_bytes = int(np.clip(CHUNK_S * per_s, LEAST_CHUNK_BYTES, MOST_CHUNK_BYTES))
        self._shares, wanted = strategy.shares, []
        for number, tree in enumerate(strategy.trees):
            for host in range(self.mesh.world):
                if host != tree.root:
                    wanted.append((2 * number, host, tree.gather[host]))
                    wanted.append((2 * number + 1, tree.spread[host], host))
        connections = self.mesh.connect(wanted)
        self._parts = [
            _Part(self.mesh.rank, tree, number, connections, chunk_bytes)
            for number, tree in enumerate(strategy.trees)
        ]

    def reduce(self, array: Array) -> None:
        """Sum a flat array in place. Then `look` is to be called.

        Raises SessionError; some ranks may have the sum then.
        """
        if self._error:
            raise self._error
        if self._is_due:
            self._plan()
        begin = time.monotonic()
        if self._ring and not self.by_trees:
            self._ring(array)
        else:
            self._along_trees(array)
        if array.nbytes >= WATCHED_BYTES:
            self._unlooked.append((time.monotonic() - begin) / array.nbytes)

    def _along_trees(self, array: Array) -> None:
        if self.mesh.world > 1 and not self._parts:
            raise SessionError("There are no connections along trees, as planning failed.")
        ends = np.cumsum([0.0, *self._shares])
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
        """Now and then, agree on how long reductions take, and on whether to plan anew.

        All ranks call it after each reduction, as soon as its sum was handed on: what they say to
        each other may wait behind another job's packets. The next reduction raises what fails here.
        """
        if len(self._unlooked) < LOOKED:
            return
        own, self._unlooked = self._unlooked, []
        try:
            told = self.gather(own)
        except (SessionError, RuntimeError) as error:
            self._error = SessionError(f"Ranks could not agree on how to go on ({error}).")
            return
        pace = float(np.median(np.min(told, axis=0)))  # the last rank to come waited for nobody
        self._best = min(self._best, pace)
        self._looks += 1
        is_slower = pace > CHANGED * self._best
        self._is_due = self._looks >= self._pause.length * (1 if is_slower else _UNCHANGED)

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
