# SPDX-License-Identifier: BSD-2-Clause
"""Treatments of a variant's jobs besides their congestion control, as its file says them.

    variants:
      planned: {cc: cubic, treatment: {time_shifts: {room: 1%}}}

Each kind of treatment is a class with its settings here, in TREATMENTS. They are applied by a
module of testbed/treatments, and by simulator/treatments.py. A variant may have several.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from mltcp_tools.base import values
from mltcp_tools.base.document import Section
from mltcp_tools.base.units import parse_fraction
from mltcp_tools.kernel.native.constants import constant
from mltcp_tools.live.priorities.coflows import WEIGHTS

SOURCES = ("network", "host")


@dataclass(frozen=True)
class TreatmentSettings:
    """One treatment of a variant. name: what it is called everywhere. cc: the only congestion
    control that it is for, None where it is for all."""

    name: ClassVar[str]
    cc: ClassVar[str | None] = None

    @classmethod
    def read(cls, section: Section) -> Self:
        """The settings in a mapping of the file."""
        raise NotImplementedError

    def document(self) -> dict[str, Any]:
        """The settings as in the file, every default filled in."""
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class TimeShiftSettings(TreatmentSettings):
    """The jobs keep to time shifts that Cassini's planner gives them (planning/variants.py).

    Time shifts are longer than the jobs' iterations by the share `room`.
    """

    name: ClassVar[str] = "time_shifts"

    room: float = 0.01

    @classmethod
    def read(cls, section: Section) -> Self:
        room = values.within(parse_fraction, 0.0, 1.0, "(0% to 100%)")
        return cls(section.get("room", room, cls.room))


@dataclass(frozen=True)
class RatesSettings(TreatmentSettings):
    """The jobs' windows follow what the network says (kmod/mltcp_rate.h), in the spirit of MLCC.

    source: `network`: the bottlenecks stamp packets, and receivers return that; `host`: the
    senders' own RTTs.
    """

    name: ClassVar[str] = "rates"
    cc: ClassVar[str | None] = "mltcp_int"

    source: str = "network"

    @classmethod
    def read(cls, section: Section) -> Self:
        return cls(section.get("source", values.choice(SOURCES), cls.source))

    def fields(self) -> dict[str, int]:
        """The fields of struct mltcp_rate_params."""
        return {
            "target_us": constant("RATE_DEFAULT_TARGET_US"),
            "low": constant("RATE_DEFAULT_LOW"),
            "add_bytes": constant("RATE_DEFAULT_ADD_BYTES"),
            "host": int(self.source == "host"),
        }


@dataclass(frozen=True)
class PrioritiesSettings(TreatmentSettings):
    """Bursts get priorities from Sincronia's order (priorities/coflows.py), made anew at each start
    and end of a burst.

    weight: what larger weights, and so earlier places, go by. floor: share of the link that each
    level is sure of, so that none starves.
    """

    name: ClassVar[str] = "priorities"

    weight: str = "none"
    floor: float = 0.01

    @classmethod
    def read(cls, section: Section) -> Self:
        floor = values.within(parse_fraction, 0.0001, 0.1, "(0.01% to 10%)")
        return cls(
            section.get("weight", values.choice(WEIGHTS), cls.weight),
            section.get("floor", floor, cls.floor),
        )


TREATMENTS: dict[str, type[TreatmentSettings]] = {
    each.name: each for each in (TimeShiftSettings, RatesSettings, PrioritiesSettings)
}
"""All treatments, in the order in which they are applied; they are undone in the opposite one."""


def read_treatments(section: Section | None) -> tuple[TreatmentSettings, ...]:
    """The treatments in a variant's mapping `treatment`, in the order of TREATMENTS."""
    if section is None:
        return ()
    found = {}
    for key in section:
        own = section.section(key, [each.name for each in dataclasses.fields(TREATMENTS[key])])
        assert own is not None
        found[key] = TREATMENTS[key].read(own)
    return tuple(found[key] for key in TREATMENTS if key in found)
