# SPDX-License-Identifier: BSD-2-Clause
"""Bytes of a TCP stream counted once, however often they were sent or captured."""

from __future__ import annotations

_SPACE = 1 << 32
# Further away than any window reaches (RFC 7323, section 2.3): another connection, of the same
# ports.
_FAR = 1 << 30
_MOST_HOLES = 1000


class Stream:
    """One direction of a connection, by its sequence numbers, which wrap around."""

    def __init__(self) -> None:
        self._next: int | None = None
        self._holes: list[tuple[int, int]] = []

    def begin(self, sequence: int) -> None:
        """A SYN was seen."""
        self._next = (sequence + 1) % _SPACE
        self._holes = []

    def add(self, sequence: int, length: int) -> int:
        """Return the number of these bytes that weren't seen before.

        Bytes that later ones overtook (lost ahead of the capture, or reordered) are new when they
        come; those sent again although they had been seen are not.
        """
        if self._next is None:
            self._next = sequence
        ahead = (sequence - self._next) % _SPACE
        start = self._next + (ahead if ahead < _SPACE // 2 else ahead - _SPACE)
        if abs(start - self._next) > _FAR:
            self._holes = []
            start = self._next = sequence
        end = start + length
        new = 0
        if self._holes and start < self._next:
            new += self._fill(start, end)
        if end > self._next:
            if start > self._next:
                self._holes.append((self._next, start))
                del self._holes[:-_MOST_HOLES]
            new += end - max(start, self._next)
            self._advance(end)
        return new

    def _fill(self, start: int, end: int) -> int:
        """Take what was missing between `start` and `end` out of the holes; returns how much."""
        filled = 0
        left: list[tuple[int, int]] = []
        for first, last in self._holes:
            inside = min(end, last) - max(start, first)
            if inside <= 0:
                left.append((first, last))
                continue
            filled += inside
            left += [(a, b) for a, b in ((first, start), (end, last)) if a < b]
        self._holes = left
        return filled

    def _advance(self, end: int) -> None:
        """Go on to `end`, back into 32 bits where it is beyond."""
        self._next = end
        if end >= _SPACE:
            self._next -= _SPACE
            self._holes = [(first - _SPACE, last - _SPACE) for first, last in self._holes]

    @property
    def missing(self) -> int:
        """Bytes that others overtook and that never came."""
        return sum(last - first for first, last in self._holes)
