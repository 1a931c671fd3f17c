# SPDX-License-Identifier: BSD-2-Clause
"""Treatments of a variant's jobs besides their congestion control, as its file says them.

    variants:
      planned: {cc: cubic, treatment: {time_shifts: {room: 1%}}}

Each kind of treatment is a class with its settings here, in TREATMENTS. Whoever runs variants has a
module of the treatment's name that applies it: testbed/treatments and simulator/treatments, which
load it where a variant has the treatment, and clusters/rules.py a rule. A variant may have several.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from mltcp_tools.base import values
from mltcp_tools.base.document import Section
from mltcp_tools.base.units import (
    exact_seconds,
    parse_bytes,
    parse_fraction,
    parse_rate,
    parse_seconds,
)
from mltcp_tools.kernel.native.constants import constant, share
from mltcp_tools.kernel.native.uapi import to_fixed
from mltcp_tools.lab.emulator.time_shift import REALIGN
from mltcp_tools.live.priorities.coflows import LEVELS, WEIGHTS

SOURCES = ("network", "host")


@dataclass(frozen=True)
class Settings:
    """One treatment of a variant. name: what it is called everywhere. cc: the only congestion
    control that it is for, None where it is for all."""

    name: ClassVar[str]
    cc: ClassVar[str | None] = None

    @classmethod
    def read(cls, section: Section) -> Self:
        """The settings in a mapping of the file."""
        raise NotImplementedError

    @classmethod
    def keys(cls) -> tuple[str, ...]:
        """Return the keys that a mapping of the file may have."""
        return tuple(cls().document())

    def document(self) -> dict[str, Any]:
        """The settings as in the file, every default filled in."""
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class TimeShiftSettings(Settings):
    """The jobs keep to time shifts that Cassini's planner gives them (planning/variants.py).

    Time shifts are longer than the jobs' iterations by the share `room`; a job that drifts by more
    than the share `realign` of one takes the next.
    """

    name: ClassVar[str] = "time_shifts"

    realign: float = REALIGN
    room: float = 0.01

    @classmethod
    def read(cls, section: Section) -> Self:
        return cls(
            section.get(
                "realign", values.within(parse_fraction, 0.001, 0.9, "(0.1% to 90%)"), REALIGN
            ),
            section.get("room", values.within(parse_fraction, 0.0, 1.0, "(0% to 100%)"), cls.room),
        )


@dataclass(frozen=True)
class RatesSettings(Settings):
    """The jobs' windows follow what the network says (kmod/mltcp_rate.h), in the spirit of MLCC.

    source: `network`: the bottlenecks stamp packets, and receivers echo that; `host`: the senders'
    own round trips. target_s: delay of the queue that a flow at the end of its burst accepts,
    seconds. low: share of it that one at the beginning accepts. add: bytes that are added to a
    window per round trip at F = 1. uplink: bit/s that each sending host's own uplink carries (the
    speed of a virtual or limited link can't be read); it then says how busy it is, as a bottleneck
    does, so that the host's flows share it without a queue. None: it says nothing.
    """

    name: ClassVar[str] = "rates"
    cc: ClassVar[str | None] = "mltcp_int"

    source: str = "network"
    target_s: float = constant("RATE_DEFAULT_TARGET_US") / 1e6
    low: float = round(share("RATE_DEFAULT_LOW"), 4)
    add: int = constant("RATE_DEFAULT_ADD_BYTES")
    uplink: int | None = None

    @classmethod
    def read(cls, section: Section) -> Self:
        if "uplink" in section and section.get("source", str, cls.source) == "host":
            raise section.error("`source: host` doesn't hear of it; leave one out.", "uplink")
        return cls(
            section.get("source", values.choice(SOURCES), cls.source),
            section.get(
                "target", values.within(parse_seconds, 1e-6, 0.03, "s (1us to 30ms)"), cls.target_s
            ),
            section.get("low", values.within(parse_fraction, 0.0, 1.0, "(0% to 100%)"), cls.low),
            section.get("add", values.within(parse_bytes, 1, 10**6, "B (1B to 1MB)"), cls.add),
            section.get(
                "uplink", values.within(parse_rate, 10**6, 10**12, "bit/s (1mbit to 1tbit)"), None
            ),
        )

    @classmethod
    def keys(cls) -> tuple[str, ...]:
        return (*super().keys(), "uplink")

    def document(self) -> dict[str, Any]:
        target, add = exact_seconds(self.target_s), f"{self.add}B"
        said = {"source": self.source, "target": target, "low": self.low, "add": add}
        return said | ({} if self.uplink is None else {"uplink": f"{self.uplink}bit"})

    def fields(self) -> dict[str, int]:
        """The fields of struct mltcp_rate_params."""
        return {
            "target_us": round(self.target_s * 1e6),
            "low": to_fixed(self.low),
            "add_bytes": self.add,
            "host": int(self.source == "host"),
        }


@dataclass(frozen=True)
class PrioritiesSettings(Settings):
    """Bursts get priorities from Sincronia's order (priorities/coflows.py), made anew at each start
    and end of a burst.

    weight: what larger weights, and so earlier places, go by. levels: of priority; the last is
    shared by what comes behind. floor: share of the link that each level is sure of, so that none
    starves.
    """

    name: ClassVar[str] = "priorities"

    weight: str = "none"
    levels: int = LEVELS
    floor: float = 0.01

    @classmethod
    def read(cls, section: Section) -> Self:
        floor = values.within(parse_fraction, 0.0001, 0.1, "(0.01% to 10%)")
        return cls(
            section.get("weight", values.choice(WEIGHTS), cls.weight),
            section.get("levels", values.whole(2, LEVELS), cls.levels),
            section.get("floor", floor, cls.floor),
        )


TREATMENTS: dict[str, type[Settings]] = {
    each.name: each for each in (TimeShiftSettings, RatesSettings, PrioritiesSettings)
}
"""All treatments, in the order in which they are applied; they are undone in the opposite one."""


def read_treatments(section: Section | None) -> tuple[Settings, ...]:
    """The treatments in a variant's mapping `treatment`, in the order of TREATMENTS."""
    if section is None:
        return ()
    found = {}
    for key in section:
        own = section.section(key, TREATMENTS[key].keys())
        assert own is not None
        found[key] = TREATMENTS[key].read(own)
    return tuple(found[key] for key in TREATMENTS if key in found)
