"""The arms of an experiment: what they are, and reading them from its file."""

from __future__ import annotations

import dataclasses
import re
import typing
from dataclasses import dataclass
from typing import Any

from mltcp_tools.backends.base import ALL_NAMES, JobParams
from mltcp_tools.document import Section
from mltcp_tools.emulator.turns import REALIGN
from mltcp_tools.errors import UsageError
from mltcp_tools.experiments import values
from mltcp_tools.experiments.each import EACH, expand
from mltcp_tools.units import parse_fraction

ALONE = "alone"
ROOM = 0.01
_PLAN_FIELDS = ("plan", "realign", "room")
_OWN_FIELDS = ("cc", "told", "base", *_PLAN_FIELDS)
_FIELDS = [*_OWN_FIELDS, *(each.name for each in dataclasses.fields(JobParams))]


@dataclass(frozen=True)
class Arm:
    """One congestion control with the `JobParams` fields it is run with.

    told: its flows are told the bytes and the gap of their job; else they learn them. base: the
    arm it is compared with, None for that of the congestion control it builds on. plan: its jobs
    keep to turns that a planner gives them (planned.py), which are longer than the jobs' iterations
    by the share `room`, and take the next one when they drift by more than the share `realign`.
    """

    name: str
    cc: str
    parameters: dict[str, Any] = dataclasses.field(default_factory=dict)
    told: bool = False
    base: str | None = None
    plan: bool = False
    realign: float = REALIGN
    room: float = ROOM

    @property
    def is_mltcp(self) -> bool:
        """Whether the arm runs through an MLTCP backend."""
        return is_mltcp(self.cc)

    def document(self) -> dict[str, Any]:
        """The arm as in an experiment's file, less its name."""
        told = {"told": True} if self.told else {}
        plan = {"plan": True, "realign": self.realign, "room": self.room} if self.plan else {}
        base = {"base": self.base} if self.base is not None else {}
        given = {key: value for key, value in self.parameters.items() if value is not None}
        return {"cc": self.cc} | given | told | plan | base


def is_mltcp(cc: str) -> bool:
    """Whether the congestion control `cc` is one of MLTCP's."""
    return cc.startswith("mltcp")


def read_arms(top: Section) -> tuple[Arm, ...]:
    """The arms of an experiment, those that `each` stands for among them."""
    section = top.section("arms", None)
    if section is None or not list(section):
        raise top.error(
            "missing; name at least one, for example `arms: {cubic: {cc: cubic}}`.", "arms"
        )
    arms: list[Arm] = []
    for entry in section:
        described = section.section(entry, [*_FIELDS, EACH])
        assert described is not None
        for name, node in expand(entry, described):
            if name == ALONE or not values.NAME.fullmatch(name):
                raise section.error(
                    f"{ALONE!r} is kept for the jobs' lone runs."
                    if name == ALONE
                    else f"an arm's name ({name}) has {values.NAME_IS}.",
                    entry,
                )
            if any(other.name == name for other in arms):
                raise section.error(f"another arm is called {name!r} already.", entry)
            arms.append(_read_arm(name, section.of(node, described.path, _FIELDS)))
    for arm in arms:
        others = [other.name for other in arms if other is not arm]
        if arm.base is not None and arm.base not in others:
            raise section.error(
                f"the base {arm.base!r} of {arm.name} is none of the other arms"
                f" ({', '.join(others)}).",
                arm.name,
            )
    return tuple(arms)


def _read_arm(name: str, section: Section) -> Arm:
    cc = section.get("cc", congestion_control)
    plan = section.get("plan", values.yes_no, False)
    for key in section:
        if key in _PLAN_FIELDS:
            if key != "plan" and not plan:
                raise section.error("belongs to an arm with `plan: true`.", key)
        elif key != "cc" and not is_mltcp(cc):
            raise section.error(
                f"{cc} takes no parameters; only congestion controls named mltcp… do.", key
            )
    return Arm(
        name,
        cc,
        _read_parameters(section),
        told=section.get("told", values.yes_no, False),
        base=section.get("base", values.name, None),
        plan=plan,
        realign=section.get(
            "realign", values.within(parse_fraction, 0.001, 0.9, "(0.1% to 90%)"), REALIGN
        ),
        room=section.get("room", values.within(parse_fraction, 0.0, 1.0, "(0% to 100%)"), ROOM),
    )


def _read_parameters(section: Section) -> dict[str, Any]:
    types = typing.get_type_hints(JobParams)
    parameters: dict[str, Any] = {}
    for key in section:
        if key in _OWN_FIELDS:
            continue
        parameters[key] = section.get(key, values.of_type(types[key]))
        try:
            JobParams(**{key: parameters[key]})
        except UsageError as error:
            raise section.error(str(error), key) from None
    return parameters


def congestion_control(value: object) -> str:
    """The name of a congestion control, or a UsageError."""
    if not isinstance(value, str) or not re.fullmatch(r"[a-z0-9_]{1,15}", value):
        raise UsageError(f"{value!r} is not the name of a congestion control, like cubic or mltcp.")
    if is_mltcp(value) and value not in ALL_NAMES:
        raise UsageError(f"{value!r} is not one of {', '.join(ALL_NAMES)}.")
    return value
