# SPDX-License-Identifier: BSD-2-Clause
"""Patterns in which the ranks of a training job communicate, as tasks that wait for each other.

An iteration of a rank is a list of tasks: it computes, or sends something to another rank. A task
begins when all those before it are done, each of which ends at the task's own rank: what that rank
has computed, or what has arrived there. So no rank knows more than a real one does. A rank begins
its next iteration when its own tasks are done and all that is due to it has arrived.

    ring      all-reduce in a ring: reduce-scatter and all-gather, n - 1 steps each (Patarasuk and
              Yuan, 2009). In `pieces` buckets, each of which goes when its part of the backward
              pass is computed, as data-parallel training does (Li et al., VLDB 2020)
    tree      all-reduce up and down a binary tree, in `pieces` chunks one after another
    experts   `pieces` rounds in which every rank computes and sends a share to every other one
              (Lepikhin et al., GShard, ICLR 2021: two rounds forward and two back per layer)
    pipeline  a stage per rank, `pieces` micro-batches: all forward, then all back (Huang et al.,
              GPipe, NeurIPS 2019)
    sharded   parameters and gradients are spread over the ranks, in `pieces` units: all-gather
              before a unit is computed, forward and back, up to two units ahead; reduce-scatter
              behind it (Zhao et al., PyTorch FSDP, VLDB 2023). Communication overlaps computing.

Computing is a third forward and two thirds back where a pattern tells the two apart.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mltcp_tools.base.errors import UsageError

MAX_RANKS = 64
MAX_PIECES = 256
MIN_MESSAGE = 64
"""Bytes; the record that says which message it is counts among them."""
_FORWARD = 1 / 3
_AHEAD = 2  # units that are gathered before they are needed


class RankTask(NamedTuple):
    """One task of a rank: it sends `size` bytes to rank `to` over the connection number `flow` of
    these two, or where `to` is None it computes `share` of the iteration's computing. after: the
    numbers of the tasks that must be done before it begins."""

    rank: int
    to: int | None
    flow: int
    size: int
    share: float
    after: tuple[int, ...]

    @property
    def ends_at(self) -> int:
        """The rank that knows when the task is done."""
        return self.rank if self.to is None else self.to


Connection = tuple[int, int, int]
"""The rank that sends, the one that receives, and which of their connections it is."""


@dataclass(frozen=True)
class Pattern:
    """The communication of `ranks` ranks; `pieces` as above. Raises UsageError."""

    kind: str
    ranks: int
    pieces: int = 1

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UsageError(f"A pattern is one of {', '.join(KINDS)}, not {self.kind!r}.")
        if not 2 <= self.ranks <= MAX_RANKS:
            raise UsageError(f"A pattern takes 2 to {MAX_RANKS} ranks, not {self.ranks}.")
        if not 1 <= self.pieces <= MAX_PIECES:
            raise UsageError(f"A pattern takes 1 to {MAX_PIECES} pieces, not {self.pieces}.")

    def tasks(self, size: int, flows: int = 1) -> tuple[RankTask, ...]:
        """The tasks of an iteration. Raises UsageError where messages come out too small.

        size: bytes: in a ring and a tree, what is reduced; of experts,
        what each rank sends; in a pipeline, what each stage hands on; of shards, all parameters.
        flows: connections of each two ranks, over which every message is split evenly.
        """
        return _tasks(self, size, flows)


@functools.lru_cache(64)
def _tasks(pattern: Pattern, size: int, flows: int) -> tuple[RankTask, ...]:
    program = _Program(pattern.ranks, flows)
    _MAKERS[pattern.kind](program, size, pattern.pieces)
    return tuple(program.tasks)


def connections(tasks: Iterable[RankTask]) -> tuple[Connection, ...]:
    """The connections that the tasks use, in the order in which they first do."""
    return tuple(dict.fromkeys(connection_of(task) for task in tasks if task.to is not None))


def connection_of(task: RankTask) -> Connection:
    """The connection over which a task sends."""
    assert task.to is not None
    return task.rank, task.to, task.flow


def sizes(tasks: Iterable[RankTask]) -> list[int]:
    """Bytes that each of their connections carries in an iteration."""
    found: dict[Connection, int] = {}
    for task in tasks:
        if task.to is not None:
            found[connection_of(task)] = found.get(connection_of(task), 0) + task.size
    return list(found.values())


def split(total: int, weights: Sequence[int]) -> list[int]:
    """`total` in whole numbers in proportion to `weights`; equal ones differ by at most one."""
    upto = [0, *itertools.accumulate(weights)]
    return [total * b // upto[-1] - total * a // upto[-1] for a, b in itertools.pairwise(upto)]


class _Program:
    """Tasks as they are written down."""

    def __init__(self, ranks: int, flows: int) -> None:
        self.ranks = ranks
        self.tasks: list[RankTask] = []
        self.flows = flows
        self._computed: dict[int, int] = {}  # rank -> its latest computing

    def compute(self, rank: int, share: float, after: Iterable[int] = ()) -> list[int]:
        """A rank computes one thing after another."""
        before = {*after, *([self._computed[rank]] if rank in self._computed else [])}
        self.tasks.append(RankTask(rank, None, 0, 0, share, tuple(sorted(before))))
        self._computed[rank] = len(self.tasks) - 1
        return [self._computed[rank]]

    def send(self, rank: int, to: int, size: int, after: Iterable[int]) -> list[int]:
        """A message, in as many parts as there are connections."""
        before = tuple(sorted(set(after)))
        first = len(self.tasks)
        for flow, part in enumerate(split(size, [1] * self.flows)):
            if part < MIN_MESSAGE:
                raise UsageError(
                    f"The bytes make messages of {part}, and {MIN_MESSAGE} is the least: raise them"
                    " or take fewer pieces."
                )
            self.tasks.append(RankTask(rank, to, flow, part, 0.0, before))
        return list(range(first, len(self.tasks)))

    def around(
        self, sizes: Sequence[int], first: int, steps: int, ready: Sequence[Sequence[int]]
    ) -> list[list[int]]:
        """Pass one part per rank around the ring, each step when the one before has arrived.

        sizes: of the parts. Rank r begins with part r + first. ready: what each rank waits for in
        every step. Per rank, the messages that come to it.
        """
        n = self.ranks
        came: list[list[int]] = [[] for _ in range(n)]
        latest: list[list[int]] = [[] for _ in range(n)]
        for step in range(steps):
            sent = [
                self.send(r, (r + 1) % n, sizes[(r + first - step) % n], [*ready[r], *latest[r]])
                for r in range(n)
            ]
            latest = [sent[(r - 1) % n] for r in range(n)]
            came = [[*all_, *new] for all_, new in zip(came, latest, strict=True)]
        return came


def _ring(program: _Program, size: int, pieces: int) -> None:
    ranks = range(program.ranks)
    for number, bucket in enumerate(split(size, [1] * pieces)):
        share = (1 - _FORWARD) / pieces + (0 if number else _FORWARD)
        computed = [program.compute(rank, share) for rank in ranks]
        parts = split(bucket, [1] * program.ranks)
        program.around(parts, 0, 2 * (program.ranks - 1), computed)


def _tree(program: _Program, size: int, pieces: int) -> None:
    n = program.ranks
    computed = [program.compute(rank, 1.0) for rank in range(n)]
    for chunk in split(size, [1] * pieces):
        came: list[list[int]] = [[] for _ in range(n)]
        for rank in range(n - 1, 0, -1):  # children have higher numbers
            came[(rank - 1) // 2] += program.send(
                rank, (rank - 1) // 2, chunk, [*computed[rank], *came[rank]]
            )
        came[0] += computed[0]
        for rank in range(1, n):
            came[rank] = program.send((rank - 1) // 2, rank, chunk, came[(rank - 1) // 2])


def _experts(program: _Program, size: int, pieces: int) -> None:
    n = program.ranks
    came: list[list[int]] = [[] for _ in range(n)]
    for of_round in split(size, [1] * pieces):
        computed = [program.compute(rank, 1 / pieces, came[rank]) for rank in range(n)]
        came = [[] for _ in range(n)]
        # Each begins with its neighbour, so that not all send to the same one first.
        for distance, part in enumerate(split(of_round, [1] * (n - 1)), 1):
            for rank in range(n):
                to = (rank + distance) % n
                came[to] += program.send(rank, to, part, computed[rank])


def _pipeline(program: _Program, size: int, pieces: int) -> None:
    last = program.ranks - 1
    parts = split(size, [1] * pieces)
    for stages, share, step in (
        (range(last + 1), _FORWARD / pieces, 1),
        (range(last, -1, -1), (1 - _FORWARD) / pieces, -1),
    ):
        came: list[list[int]] = [[] for _ in parts]
        for stage in stages:
            for number, part in enumerate(parts):
                computed = program.compute(stage, share, came[number])
                if 0 <= stage + step <= last:
                    came[number] = program.send(stage, stage + step, part, computed)


def _sharded(program: _Program, size: int, pieces: int) -> None:
    n = program.ranks
    units = [split(unit, [1] * n) for unit in split(size, [1] * pieces)]
    forward = [(unit, _FORWARD / pieces, False) for unit in units]
    back = [(unit, (1 - _FORWARD) / pieces, True) for unit in reversed(units)]
    computed: list[list[list[int]]] = []  # of each step, per rank
    for number, (unit, share, reduces) in enumerate(forward + back):
        limit = number - _AHEAD
        ready = computed[limit] if limit >= 0 else [[] for _ in range(n)]
        # The unit that was computed last is still there.
        gathers = number != len(units)
        came = program.around(unit, 0, n - 1, ready) if gathers else [[] for _ in range(n)]
        computed.append([program.compute(rank, share, came[rank]) for rank in range(n)])
        if reduces:
            program.around(unit, -1, n - 1, computed[-1])


_MAKERS: dict[str, Callable[[_Program, int, int], None]] = {
    "ring": _ring,
    "tree": _tree,
    "experts": _experts,
    "pipeline": _pipeline,
    "sharded": _sharded,
}
KINDS: tuple[str, ...] = tuple(_MAKERS)
