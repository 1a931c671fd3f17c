# SPDX-License-Identifier: BSD-2-Clause
"""The iteration in the calls that a training process makes to its communication library.

A process calls the library the same way in every iteration, but neither the number of calls nor
their sizes nor their distances are known beforehand. So every simple rule that could mark the same
point of each iteration is tried: a call of some kind and size, a sequence of two or three such
calls, or a pause above some length. A rule cuts the calls into pieces; the better these resemble
each other in number of calls, bytes and duration, the larger the share of all bytes and of the
whole time that is in typical pieces, which is the rule's coverage. The rule that covers most is
believed, and among those that cover about as much the one with the shortest pieces: the others
count several iterations as one.

Nothing here knows a library or a process: the calls may come from anywhere.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from mltcp_tools.kernel.backends.base import GAP_MAX_S, TOTAL_MAX
from mltcp_tools.live.sources.metadata import Metadata

_CALLS = 4096
"""Calls remembered: 100 per iteration leave forty iterations."""

_ITERATIONS = 32
"""Iterations remembered, so that what the job did long ago no longer counts."""

_RECENT = 8
"""Iterations that period, bytes and pauses are the medians of: a change shows after five."""

_PIECES = 3
"""Pieces that a rule must make at least."""

_ALIKE = 0.25
"""The distance from the median that a typical piece's bytes and number of calls may have: calls get
lost, batches are ragged."""

_SHORTER, _LONGER = 0.4, 2.5
"""The same for its duration, as factors: collisions with other jobs make iterations longer."""

_AS_GOOD = 0.05
"""Coverage below the best that shorter pieces are taken at."""

_ENOUGH = 0.85
"""Coverage at which all calls are believed to belong to what the job does now."""

_SHORTEST_PAUSE_S = 1e-5
"""Shorter pauses are no longer told apart."""

_LONGEST_SEQUENCE = 3
_PAUSE_RULES = 4
_PAUSE_RATIO = 1.5


@dataclass(frozen=True)
class Call:
    """One call of a library that communicates.

    start_s, end_s: CLOCK_MONOTONIC seconds; equal where only the call's beginning is known.
    kind: what tells calls of one sort from others, such as the function and the communicator.
    sent_bytes: what this process sends because of it, 0 where unknown.
    """

    start_s: float
    end_s: float
    kind: Hashable
    sent_bytes: int


@dataclass(frozen=True)
class Iterations:
    """The iterations found in a sequence of calls.

    period_s: from one iteration's start to the next's. sent_bytes: per iteration and process.
    idle_s: the longest pause between calls in a usual iteration, the one that ends it; pause_s:
    the second longest. seen: how many were like the usual one.
    confidence: 0..1, the share of time and bytes in such iterations, less where they are few.
    """

    period_s: float
    sent_bytes: int
    idle_s: float
    pause_s: float
    seen: int
    confidence: float

    @property
    def gap_s(self) -> float:
        """Seconds of silence that end an iteration: more than pause_s, less than idle_s.

        The geometric mean of both, but no less than a quarter of idle_s, as a single call leaves
        no pause; and no more than that where nothing demands it, as a call that only puts its data
        in a queue says nothing of how long the network is busy with it.
        """
        return min(max(math.sqrt(self.pause_s * self.idle_s), self.idle_s / 4), GAP_MAX_S)

    def metadata(self, source: str, flow_share: float | None = None) -> Metadata:
        """For the tag. flow_share: share of the process's bytes that one flow sends, if known."""
        size = None
        if flow_share is not None and self.sent_bytes:
            size = min(round(self.sent_bytes * flow_share), TOTAL_MAX)
        return Metadata(
            source=source,
            period_s=self.period_s,
            bytes_per_iteration=size,
            gap_s=self.gap_s,
            confidence=self.confidence,
            iterations_seen=self.seen,
        )


class CallLog:
    """The calls of one process as they come, and the iterations in those of late."""

    def __init__(self) -> None:
        self._calls: deque[Call] = deque(maxlen=_CALLS)

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, calls: Iterable[Call]) -> None:
        """Append calls; those of several threads may come slightly out of order."""
        self._calls.extend(calls)

    @property
    def last_s(self) -> float:
        """Return the time of the last call, -inf before the first."""
        return self._calls[-1].start_s if self._calls else -math.inf

    def iterations(self) -> Iterations | None:
        """Return the iterations that calls of late repeat, None while they repeat nothing."""
        found = find_iterations(list(self._calls))
        if found is not None:
            oldest = self.last_s - _ITERATIONS * found.period_s
            while self._calls[0].start_s < oldest:
                self._calls.popleft()
        return found


def find_iterations(calls: Sequence[Call]) -> Iterations | None:
    """The iterations in the calls, None where there are none (fewer than four of anything).

    Where the calls as a whole repeat too little, because a warm-up or another batch size is among
    them, only those of the later half of the time count.
    """
    calls = sorted(calls, key=lambda call: call.start_s)
    if len(calls) <= _PIECES:
        return None
    best = _best(calls)
    if best is None or best.coverage < _ENOUGH:
        middle = (calls[0].start_s + calls[-1].start_s) / 2
        late = [call for call in calls if call.start_s >= middle]
        later = _best(late) if len(late) > _PIECES else None
        if later is not None and (best is None or later.confidence > best.confidence):
            best, calls = later, late
    return None if best is None else _describe(calls, best)


@dataclass(frozen=True)
class _Rule:
    """The result of a rule on the calls. marks: indices of the calls that it cuts before."""

    marks: tuple[int, ...]
    typical: tuple[tuple[int, int], ...]
    duration_s: float
    coverage: float

    @property
    def confidence(self) -> float:
        """The coverage, less where few pieces may be alike by chance: half of it with four."""
        return self.coverage * max(1 - 2.0 ** (3 - len(self.typical)), 0.0)


def _best(calls: Sequence[Call]) -> _Rule | None:
    sizes = [call.sent_bytes for call in calls]
    if not any(sizes):
        sizes = [1] * len(calls)
    sums = [0]
    for size in sizes:
        sums.append(sums[-1] + size)
    starts = [call.start_s for call in calls]
    rules = [
        _judge(marks, starts, sums)
        for marks in {*_sequences(calls, _exactly), *_sequences(calls, _kind), *_pauses(calls)}
    ]
    if not rules:
        return None
    limit = max(rule.coverage for rule in rules) - _AS_GOOD
    good = [rule for rule in rules if rule.coverage >= limit and rule.typical]
    return min(good, key=lambda rule: (rule.duration_s, -rule.coverage), default=None)


def _exactly(call: Call) -> Hashable:
    return call.kind, call.sent_bytes


def _kind(call: Call) -> Hashable:
    return call.kind


def _sequences(calls: Sequence[Call], name: Callable[[Call], Hashable]) -> set[tuple[int, ...]]:
    """Marks where the same one, two or three calls end."""
    names = [name(call) for call in calls]
    found: defaultdict[tuple[Hashable, ...], list[int]] = defaultdict(list)
    for length in range(1, _LONGEST_SEQUENCE + 1):
        for end in range(length, len(names) + 1):
            found[tuple(names[end - length : end])].append(end - 1)
    return {tuple(marks) for marks in found.values() if len(marks) > _PIECES}


def _pauses(calls: Sequence[Call]) -> set[tuple[int, ...]]:
    """Marks after pauses above some length, where lengths fall apart into short and long ones."""
    pauses = [max(pause, _SHORTEST_PAUSE_S) for pause in _pauses_before(calls)[1:]]
    ordered = sorted(pauses)
    jumps = sorted(
        (
            (longer / shorter, longer)
            for shorter, longer in itertools.pairwise(ordered)
            if longer / shorter >= _PAUSE_RATIO
        ),
        reverse=True,
    )[:_PAUSE_RULES]
    found = (
        tuple(index for index, pause in enumerate(pauses, 1) if pause >= limit)
        for _, limit in jumps
    )
    return {marks for marks in found if len(marks) > _PIECES}


def _pauses_before(calls: Sequence[Call]) -> list[float]:
    """Seconds in which no call was under way, before each call; 0 before the first."""
    pauses, busy_until = [], calls[0].start_s
    for call in calls:
        pauses.append(max(call.start_s - busy_until, 0.0))
        busy_until = max(busy_until, call.end_s)
    return pauses


def _judge(marks: tuple[int, ...], starts: Sequence[float], sums: Sequence[int]) -> _Rule:
    """Cut before each mark, and see how far the pieces resemble each other."""
    pieces = list(itertools.pairwise(marks))
    count = median(last - first for first, last in pieces)
    size = median(sums[last] - sums[first] for first, last in pieces)
    duration = median(starts[last] - starts[first] for first, last in pieces)
    typical = tuple(
        (first, last)
        for first, last in pieces
        if abs(last - first - count) <= _ALIKE * count
        and abs(sums[last] - sums[first] - size) <= _ALIKE * size
        and _SHORTER * duration <= starts[last] - starts[first] <= _LONGER * duration
    )
    coverage = min(
        _share(starts, marks, typical, duration), _share(sums[:-1], marks, typical, size)
    )
    return _Rule(marks, typical, duration, coverage)


def _share(
    scale: Sequence[float],
    marks: tuple[int, ...],
    typical: tuple[tuple[int, int], ...],
    usual: float,
) -> float:
    """Share of the scale, time or bytes, in typical pieces.

    The calls begin and end anywhere in an iteration, so as much as one piece is left out of
    account before the first mark and after the last.
    """
    outside = (scale[marks[0]] - scale[0], scale[-1] - scale[marks[-1]])
    whole = scale[marks[-1]] - scale[marks[0]] + sum(max(part - usual, 0.0) for part in outside)
    if whole <= 0:
        return 0.0
    return sum(scale[last] - scale[first] for first, last in typical) / whole


def _describe(calls: Sequence[Call], rule: _Rule) -> Iterations:
    recent = rule.typical[-_RECENT:]
    idle, pause = _boundary(_pauses_before(calls), recent)
    return Iterations(
        period_s=median(calls[last].start_s - calls[begin].start_s for begin, last in recent),
        sent_bytes=round(
            median(sum(call.sent_bytes for call in calls[begin:last]) for begin, last in recent)
        ),
        idle_s=idle,
        pause_s=pause,
        seen=len(rule.typical),
        confidence=rule.confidence,
    )


def _boundary(pauses: Sequence[float], pieces: Sequence[tuple[int, int]]) -> tuple[float, float]:
    """Return the two longest pauses of a usual piece.

    Only pieces of the commonest number of calls are comparable call by call.
    """
    usual = Counter(last - first for first, last in pieces).most_common(1)[0][0]
    alike = [first for first, last in pieces if last - first == usual]
    at = [median(pauses[first + offset] for first in alike) for offset in range(usual)]
    longest = max(range(usual), key=at.__getitem__)
    others = (
        max(pauses[first + offset] for offset in range(usual) if offset != longest)
        for first in alike
    )
    return at[longest], median(others) if usual > 1 else 0.0
