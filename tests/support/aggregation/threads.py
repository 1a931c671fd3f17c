"""Ranks as threads of one process, which tell each other things by a barrier."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

Gather = Callable[[Any], list[Any]]


class Ranks:
    """`world` ranks; one set of them runs one piece of work."""

    def __init__(self, world: int) -> None:
        self.world = world
        self._barrier = threading.Barrier(world, timeout=60)
        self._said: list[Any] = [None] * world

    def _gather_of(self, rank: int) -> Gather:
        def gather(what: Any) -> list[Any]:
            self._said[rank] = what
            self._barrier.wait()
            told = list(self._said)
            self._barrier.wait()
            return told

        return gather

    def run(self, work: Callable[[int, Gather], Any]) -> list[Any]:
        """What `work`, given its rank and a gather, returns or raises at each rank."""
        results: list[Any] = [None] * self.world

        def be(rank: int) -> None:
            try:
                results[rank] = work(rank, self._gather_of(rank))
            except Exception as error:
                results[rank] = error

        threads = [threading.Thread(target=be, args=(rank,)) for rank in range(self.world)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results
