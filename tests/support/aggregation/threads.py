# SPDX-License-Identifier: BSD-2-Clause
"""Ranks as threads of one process, which tell each other things by a barrier."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

Gather = Callable[[Any], list[Any]]


class Closable(Protocol):
    def close(self) -> None: ...


Session = TypeVar("Session", bound=Closable)


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

    def run_with(
        self, make: Callable[[int, Gather], Session], work: Callable[[int, Session], Any]
    ) -> list[Any]:
        """As run, of `work` with what `make` makes at each rank, which is closed in the end."""

        def be(rank: int, gather: Gather) -> Any:
            with contextlib.closing(make(rank, gather)) as session:
                return work(rank, session)

        return self.run(be)

    def run(self, work: Callable[[int, Gather], Any]) -> list[Any]:
        """Return what `work`, given its rank and a gather, returns or raises at each rank."""
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
