"""All-reduces along the trees of a strategy, over TCP, chunk after chunk."""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mltcp_tools.collectives.adaptive.links import ring_s
from mltcp_tools.collectives.adaptive.mesh import Gather, Mesh, receive_into
from mltcp_tools.collectives.adaptive.probe import measure
from mltcp_tools.collectives.adaptive.strategy import Strategy, find_strategy
from mltcp_tools.collectives.adaptive.trees import Tree
from mltcp_tools.collectives.session import SessionError

CHUNK_S = 0.004
"""Of the planned time of a chunk: short, for each hop begins when a chunk has come whole."""

LEAST_CHUNK_BYTES, MOST_CHUNK_BYTES = 8_192, 65_536
TREES_FROM = 1.1
"""How many times a ring's time must be the trees', to be worth more connections than a ring's."""

TRIAL_BYTES = 1_000_000
"""Of the array by which that is tried when a plan is made."""

REPLAN_EVERY = 16
"""Most collectives between looks at whether the plan is still right."""

_LEAST_EVERY = 3
"""Fewest: of three, one that was held up doesn't count."""

_LOOK_S = 1.0
"""Planned seconds of collectives between looks, within these: long ones are looked at sooner."""

_PLANNING_SHARE = 0.1
"""Of the time, that measuring and planning anew may take: another job's bursts look like a slow
link, and would have the ranks measure without end."""

_EPOCH_BITS = 16  # of a mesh's series, for the plans of an epoch

WATCHED_BYTES = 500_000
"""Smaller arrays take their time for other reasons than the links' rates."""

REPLAN_FROM = 1.3
"""How many times longer than at best since the plan was made, for a new one; or how many times
sooner than at first, for the links that the plan spares may be as fast as the others again."""

Array = npt.NDArray[Any]


class AdaptiveSession:
    """Sums of arrays along trees chosen for the links as they were measured.

    All ranks make one, and those that are members call `reduce` with arrays of equal size and type.
    Every rank gets the same bits: a root's sum goes to all.

    gather: told what this member says, it returns what all members say, in their order; may be
    replaced. ring: sums an array of all ranks in place, where no trees promise to be sooner; None
    for trees always. plan_bytes: of the array that the plan is made for.
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
        self.plans = 0
        self.plan(range(mesh.world), 0)

    def plan(self, members: Sequence[int], epoch: int) -> None:
        """Go on among `members`, who all call it. Raises SessionError.

        epoch: a number from 0 to 65535 that is higher for each set of members.
        """
        self.members, self._epoch, self._plans_in_epoch = members, epoch, 0
        self._plan()

    def interrupt(self, epoch: int) -> None:
        """Fail what goes on in another thread, and all of epochs before this one."""
        self.mesh.give_up(epoch << _EPOCH_BITS)

    def _plan(self) -> None:
        """Measure, have the first member choose the trees, and connect along them."""
        self.mesh.series = self._epoch << _EPOCH_BITS | self._plans_in_epoch
        self._plans_in_epoch += 1
        begin = time.monotonic()
        links = measure(self.mesh, self.gather, self.members)
        chooses = self.mesh.rank == self.members[0]
        chosen = find_strategy(links, self._plan_bytes) if chooses else None
        strategy: Strategy = self.gather(chosen)[0]
        self.strategy = strategy
        self._in_a_ring_s = in_a_ring_s = ring_s(links, self._plan_bytes)
        self.uses_ring = self._ring is not None and in_a_ring_s < TREES_FROM * strategy.seconds
        self.planned_s = in_a_ring_s if self.uses_ring else strategy.seconds
        per_s = self._plan_bytes / strategy.seconds if strategy.seconds else np.inf
        self._chunk_bytes = int(np.clip(CHUNK_S * per_s, LEAST_CHUNK_BYTES, MOST_CHUNK_BYTES))
        self._first_ratio, self._best_ratio = 0.0, float("inf")
        self._ring_ratio = float("inf")  # of one by the ring among those along trees
        self._ratios: list[float] = []  # since the last look, without that one
        self._unlooked = self._untried = 0  # collectives since a look; since one by the ring
        self.plans += 1
        self._parts: list[_Part] = []
        if not self.uses_ring:
            self._connect(strategy)
            if self._ring is not None and not self._trees_are_sooner(self._ring):
                self._use_ring()
        self._planned_at = time.monotonic()
        self._pause_s = (self._planned_at - begin) / _PLANNING_SHARE

    def _use_ring(self) -> None:
        """From now on, until it takes longer than at best."""
        self.uses_ring, self.planned_s = True, self._in_a_ring_s
        self._first_ratio, self._best_ratio = 0.0, float("inf")
        self.mesh.disconnect()

    def _trees_are_sooner(self, ring: Callable[[Array], None]) -> bool:
        """Whether they keep their promise: probes may err, and hosts may be slower than links."""
        took = []
        for reduce in (ring, self._along_trees):
            seconds = []
            for _ in range(2):  # the first is to warm up
                array = np.zeros(TRIAL_BYTES // 4, dtype=np.float32)
                self.gather(None)
                begin = time.monotonic()
                reduce(array)
                seconds.append(time.monotonic() - begin)
            took.append(max(self.gather(seconds[1])))
        return bool(took[0] >= TREES_FROM * took[1])

    def _connect(self, strategy: Strategy) -> None:
        """Hosts of the trees are places among the members; connections are between ranks."""
        wanted, rank_of = [], self.members
        for number, tree in enumerate(strategy.trees):
            for host in range(len(rank_of)):
                if host != tree.root:
                    wanted.append((2 * number, rank_of[host], rank_of[tree.gather[host]]))
                    wanted.append((2 * number + 1, rank_of[tree.spread[host]], rank_of[host]))
        made = self.mesh.connect(wanted)
        place = {rank: host for host, rank in enumerate(rank_of)}
        connections = {(use, place[i], place[j]): each for (use, i, j), each in made.items()}
        own = place[self.mesh.rank]
        self._parts = [
            _Part(own, tree, number, connections, self._chunk_bytes)
            for number, tree in enumerate(strategy.trees)
        ]

    def reduce(self, array: Array) -> int:
        """Sum a flat array in place; returns of how many ranks.

        Raises SessionError; some ranks may have the sum then.
        """
        # One in so many goes by the ring, which tells whether trees are still worth it.
        tries = (
            self._untried >= REPLAN_EVERY - 2
            and bool(self._ratios)
            and array.nbytes >= WATCHED_BYTES
        )
        begin = time.monotonic()
        if self._ring and (self.uses_ring or tries):
            self._ring(array)
        else:
            self._along_trees(array)
        self._watch(
            array.nbytes, time.monotonic() - begin, by_ring=self._ring is not None and tries
        )
        return len(self.members)

    def _along_trees(self, array: Array) -> None:
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

    def _watch(self, size: int, seconds: float, by_ring: bool) -> None:
        """Plan anew where the links have become slower than the plan supposes, or faster again."""
        predicted = self.planned_s * size / self._plan_bytes
        ratio = seconds / predicted if predicted else 1.0
        self._unlooked, self._untried = self._unlooked + 1, self._untried + 1
        if by_ring:
            self._untried = 0
        if by_ring and not self.uses_ring:
            self._ring_ratio = ratio
        else:
            self._ratios.append(ratio)
        every = np.clip(_LOOK_S / predicted, _LEAST_EVERY, REPLAN_EVERY) if predicted else 1
        if (self._unlooked < int(every) and not by_ring) or size < WATCHED_BYTES:
            return
        self._unlooked = 0
        rested = time.monotonic() - self._planned_at >= self._pause_s
        told = self.gather((float(np.median(self._ratios)), self._ring_ratio, rested))
        slowest, ring = max(each[0] for each in told), max(each[1] for each in told)
        self._ratios.clear()
        self._ring_ratio = float("inf")
        if not self.uses_ring and ring < slowest:
            self._use_ring()
            return
        self._first_ratio = self._first_ratio or slowest
        slower = slowest > REPLAN_FROM * self._best_ratio
        faster = slowest * REPLAN_FROM < self._first_ratio
        if (slower or faster) and told[0][2]:  # all do as the first one says
            self.mesh.disconnect()
            self._plan()
        else:
            self._best_ratio = min(self._best_ratio, slowest)

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
