# SPDX-License-Identifier: BSD-2-Clause
"""The expectations of an experiment of its variants, so that whoever runs it learns whether it came
out.

    expect:
      gain: {mltcp: 80%, told: [50%, 105%]}    # captured gain: the least, or the least and the most
      order: [mltcp, [cubic, reno]]            # by mean iteration, the shortest first

Who stands together in the order is compared with those before and behind, not with each other.
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
_MOST = 100.0
"""No captured gain is as large."""


@dataclass(frozen=True)
class Expect:
    """gain: variant -> the least and the most of its captured gain. order: groups of variants,
    those with the shortest mean iterations first."""

    gain: dict[str, tuple[float, float]] = field(default_factory=dict)
    order: tuple[tuple[str, ...], ...] = ()

    def of(self, variants: Collection[str]) -> Expect:
        """Return the expectations of these variants alone."""
        groups = (tuple(name for name in group if name in variants) for group in self.order)
        order = tuple(group for group in groups if group)
        gain = {name: bounds for name, bounds in self.gain.items() if name in variants}
        return Expect(gain, order if len(order) > 1 else ())

    def document(self) -> dict[str, Any]:
        """As in the file; {} where nothing is expected."""
        found: dict[str, Any] = {}
        if self.gain:
            found["gain"] = {
                name: least if most == _MOST else [least, most]
                for name, (least, most) in self.gain.items()
            }
        if self.order:
            found["order"] = [list(group) for group in self.order]
        return found

    def missed(self, means_s: Mapping[str, float], gains: Mapping[str, float]) -> list[str]:
        """Sentences on what didn't come out. means_s, gains: mean iteration and captured gain of
        the variants of which they are known."""
        said = []
        for name, (least, most) in self.gain.items():
            gain = gains.get(name)
            if gain is None:
                said.append(f"The gain of {name} isn't known, and {least:.0%} is expected.")
            elif not least <= gain <= most:
                bound = f"at least {least:.0%}" if gain < least else f"at most {most:.0%}"
                said.append(f"The gain of {name} is {gain:.0%}, and {bound} is expected.")
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
    gain = {name: gains.get(name, _bounds) for name in gains} if gains is not None else {}
    order: tuple[tuple[str, ...], ...] = section.get("order", _groups, ())
    named = [name for group in order for name in group]
    for name in named:
        if name not in variants or named.count(name) > 1:
            raise section.error(f"{name!r} must be one of {', '.join(variants)}, once.", "order")
    if len(order) == 1:
        raise section.error(
            "one group of variants has no order; name what is slower, too.", "order"
        )
    return Expect(gain, order)


def _bounds(value: object) -> tuple[float, float]:
    if not isinstance(value, list):
        return parse_fraction(value), _MOST
    if len(value) != 2:
        raise UsageError(f"{value!r} is not the least gain, or a list of the least and the most.")
    least, most = (parse_fraction(each) for each in value)
    return least, most


def _groups(value: object) -> tuple[tuple[str, ...], ...]:
    if not isinstance(value, list):
        raise UsageError(f"{value!r} is not a list of variants, or of lists of variants.")
    return tuple(
        tuple(map(str, each)) if isinstance(each, list) else (str(each),) for each in value
    )
