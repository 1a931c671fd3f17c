# SPDX-License-Identifier: BSD-2-Clause
"""The expectations of an experiment: what its variants have shown before.

    expect:
      gain: {mltcp: 80%}               # captured gain, at least
      order: [mltcp, [cubic, reno]]    # by mean iteration, the shortest first

Variants of one group in the order are compared with those of other groups, not with each other.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from mltcp_tools.base.document import Section
from mltcp_tools.base.errors import UsageError
from mltcp_tools.base.units import parse_fraction

FIELDS = ("gain", "order")


@dataclass(frozen=True)
class Expect:
    """gain: variant -> its captured gain, at least. order: groups of variants, those with the
    shortest mean iterations first."""

    gain: dict[str, float] = field(default_factory=dict)
    order: tuple[tuple[str, ...], ...] = ()

    def of(self, variants: Collection[str]) -> Expect:
        """Return the expectations of these variants alone."""
        groups = (tuple(name for name in group if name in variants) for group in self.order)
        order = tuple(group for group in groups if group)
        gain = {name: least for name, least in self.gain.items() if name in variants}
        return Expect(gain, order if len(order) > 1 else ())

    def document(self) -> dict[str, Any]:
        """As in the file; {} where nothing is expected."""
        found: dict[str, Any] = {}
        if self.gain:
            found["gain"] = dict(self.gain)
        if self.order:
            found["order"] = [list(group) for group in self.order]
        return found

    def missed(self, means_s: Mapping[str, float], gains: Mapping[str, float]) -> list[str]:
        """Sentences on what didn't come out. means_s, gains: mean iteration and captured gain of
        the variants of which they are known."""
        said = []
        for name, least in self.gain.items():
            gain = gains.get(name)
            if gain is None:
                said.append(f"The gain of {name} isn't known, and {least:.0%} is expected.")
            elif gain < least:
                said.append(f"The gain of {name} is {gain:.0%}, and {least:.0%} is expected.")
        for before, behind in itertools.pairwise(self.order):
            for first, other in itertools.product(before, behind):
                own_s, other_s = means_s.get(first), means_s.get(other)
                if own_s is None or other_s is None or own_s >= other_s:
                    said.append(f"{first} isn't faster than {other}, as is expected.")
        return said


def read_expect(top: Section, variants: Collection[str]) -> Expect:
    """The expectations of an experiment with these variants."""
    section = top.section("expect", FIELDS)
    if section is None:
        return Expect()
    gains = section.section("gain", tuple(variants))
    gain = {name: gains.get(name, parse_fraction) for name in gains} if gains is not None else {}
    order: tuple[tuple[str, ...], ...] = section.get("order", _groups, ())
    named = [name for group in order for name in group]
    for name in named:
        if name not in variants or named.count(name) > 1:
            raise section.error(f"{name!r} must be one of {', '.join(variants)}, once.", "order")
    if len(order) == 1:
        raise section.error("one group of variants has no order; name slower ones, too.", "order")
    return Expect(gain, order)


def _groups(value: object) -> tuple[tuple[str, ...], ...]:
    if not isinstance(value, list):
        raise UsageError(f"{value!r} is not a list of variants, or of lists of variants.")
    return tuple(
        tuple(map(str, each)) if isinstance(each, list) else (str(each),) for each in value
    )
