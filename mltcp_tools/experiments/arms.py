"""The arms of an experiment: what they are, and reading them from its file."""

from __future__ import annotations

import dataclasses
import re
import typing
from dataclasses import dataclass
from typing import Any, TypeVar

from mltcp_tools.backends.base import ALL_NAMES, JobParams
from mltcp_tools.document import Section
from mltcp_tools.errors import UsageError
from mltcp_tools.experiments import values
from mltcp_tools.experiments.each import EACH, expand
from mltcp_tools.experiments.treatments import KINDS, Cassini, Feedback, Settings, read_treatments

ALONE = "alone"
# Another spelling of `treatment: {cassini: {…}}`, from when there were no other treatments.
_PLAN_FIELDS = ("plan", "realign", "room")
_OWN_FIELDS = ("cc", "told", "fine_stamps", "base", "treatment", *_PLAN_FIELDS)
_Settings = TypeVar("_Settings", bound=Settings)
_FIELDS = [*_OWN_FIELDS, *(each.name for each in dataclasses.fields(JobParams))]


@dataclass(frozen=True)
class Arm:
    """One congestion control with the `JobParams` fields it is run with, and other treatments.

    told: its flows are told the bytes and the gap of their job; else they learn them. fine_stamps:
    both ends' time stamps count microseconds. base: the arm it is compared with, None for that of
    the congestion control it builds on. treatments: what else is done to its jobs (treatments.py),
    at most one of a kind.
    """

    name: str
    cc: str
    parameters: dict[str, Any] = dataclasses.field(default_factory=dict)
    told: bool = False
    fine_stamps: bool = False
    base: str | None = None
    treatments: tuple[Settings, ...] = ()

    @property
    def is_mltcp(self) -> bool:
        """Whether the arm runs through an MLTCP backend."""
        return is_mltcp(self.cc)

    def treatment(self, kind: type[_Settings]) -> _Settings | None:
        """The arm's treatment of that kind, if it has one."""
        return next((each for each in self.treatments if isinstance(each, kind)), None)

    def settings(self, kind: type[_Settings]) -> _Settings:
        """The same of an arm that is known to have it."""
        found = self.treatment(kind)
        assert found is not None
        return found

    def document(self) -> dict[str, Any]:
        """The arm as in an experiment's file, less its name."""
        told = {"told": True} if self.told else {}
        told |= {"fine_stamps": True} if self.fine_stamps else {}
        treatment = {each.name: each.document() for each in self.treatments}
        treated = {"treatment": treatment} if treatment else {}
        base = {"base": self.base} if self.base is not None else {}
        given = {key: value for key, value in self.parameters.items() if value is not None}
        return {"cc": self.cc} | given | told | treated | base


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
                f"the base {arm.base!r} of {arm.name} is not one of the other arms"
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
        elif key not in ("cc", "treatment") and not is_mltcp(cc):
            if key == "base" and (plan or "treatment" in section):
                continue
            raise section.error(
                f"{cc} takes no parameters; only congestion controls named mltcp… do.", key
            )
    treatments = read_treatments(section.section("treatment", tuple(KINDS)))
    if any(isinstance(each, Feedback) for each in treatments) and cc != "mltcp_int":
        raise section.error(
            f"feedback is for `cc: mltcp_int`; {cc} doesn't look at it.", "treatment"
        )
    if plan:
        if any(isinstance(each, Cassini) for each in treatments):
            raise section.error("says `plan` again; leave `plan` out.", "treatment")
        treatments = (Cassini.read(section), *treatments)
    return Arm(
        name,
        cc,
        _read_parameters(section),
        told=section.get("told", values.yes_no, False),
        fine_stamps=section.get("fine_stamps", values.yes_no, False),
        base=section.get("base", values.name, None),
        treatments=treatments,
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
