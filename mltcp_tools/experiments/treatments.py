"""What an arm may do to its jobs besides choosing their congestion control, as its file says it.

    arms:
      turns: {cc: cubic, treatment: {cassini: {room: 1%}}}

Each kind of treatment is a class with its settings here and one that applies them in
testbed/treatments. An arm may have several.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from mltcp_tools.document import Section
from mltcp_tools.emulator.turns import REALIGN
from mltcp_tools.experiments import values
from mltcp_tools.units import parse_fraction


@dataclass(frozen=True)
class Settings:
    """One treatment of an arm. name: in the file. noun: what an arm that has it is called."""

    name: ClassVar[str]
    noun: ClassVar[str]

    @classmethod
    def read(cls, section: Section) -> Self:
        """The settings in a mapping of the file."""
        raise NotImplementedError

    def document(self) -> dict[str, Any]:
        """The settings as in the file, every default filled in."""
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class Cassini(Settings):
    """The jobs keep to turns that a planner gives them (testbed/treatments/cassini.py).

    Turns are longer than the jobs' iterations by the share `room`; a job that drifts by more than
    the share `realign` of one takes the next.
    """

    name: ClassVar[str] = "cassini"
    noun: ClassVar[str] = "an arm with a plan"

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


KINDS: dict[str, type[Settings]] = {each.name: each for each in (Cassini,)}


def read_treatments(section: Section | None) -> tuple[Settings, ...]:
    """The treatments in an arm's mapping `treatment`, in the order of KINDS."""
    if section is None:
        return ()
    found = {}
    for key in section:
        fields = [field.name for field in dataclasses.fields(KINDS[key])]
        own = section.section(key, fields)
        assert own is not None
        found[key] = KINDS[key].read(own)
    return tuple(found[key] for key in KINDS if key in found)
