# SPDX-License-Identifier: BSD-2-Clause
"""The random balanced order of a trial's rounds, and every other order that it might have had.

A round is one period of each variant. Which comes first is drawn: of the planned rounds exactly
half begin with either, so that what changes steadily on a host helps neither variant. A round that
is added for a discarded one has its own toss.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, product

ENUMERATED = 4000
"""Orders that are gone through one by one; of more, so many are drawn."""


@dataclass(frozen=True)
class Order:
    """The orders of rounds, of which each begins with mltcp or without: `planned` ones, half of
    each, then single tosses.
    """

    first: tuple[bool, ...]
    planned: int

    def more(self, source: random.Random) -> Order:
        """With one round more."""
        return Order((*self.first, source.random() < 0.5), self.planned)

    @property
    def count(self) -> int:
        """Return the number of orders it was drawn from."""
        extra = len(self.first) - self.planned
        return math.comb(self.planned, self.planned // 2) << extra

    def others(self, most: int = ENUMERATED) -> Iterator[tuple[bool, ...]]:
        """Every order that it might have been, itself too; of more than `most` a sample of these.

        All are as likely as each other, and a sample is the same each time.
        """
        extra = len(self.first) - self.planned
        if self.count > most:
            yield self.first
            source = random.Random(self.planned * 1000 + extra)
            for _ in range(most - 1):
                order = draw(self.planned, source)
                for _ in range(extra):
                    order = order.more(source)
                yield order.first
            return
        for heads in combinations(range(self.planned), self.planned // 2):
            chosen = set(heads)
            begin = tuple(index in chosen for index in range(self.planned))
            for tail in product((False, True), repeat=extra):
                yield begin + tail


def draw(rounds: int, source: random.Random) -> Order:
    """An order of so many rounds, an even number."""
    if rounds % 2:
        raise ValueError("a balanced order has an even number of rounds")
    first = [index < rounds // 2 for index in range(rounds)]
    source.shuffle(first)
    return Order(tuple(first), rounds)
