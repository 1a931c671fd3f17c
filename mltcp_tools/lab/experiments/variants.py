# SPDX-License-Identifier: BSD-2-Clause
"""The variants of an experiment: what they are, and reading them from its file."""

from __future__ import annotations

import dataclasses
import re
import typing
from dataclasses import dataclass
from typing import Any, TypeVar

from mltcp_tools.base import values
from mltcp_tools.base.document import Section
from mltcp_tools.base.errors import UsageError
from mltcp_tools.kernel.backends.base import JobParams
from mltcp_tools.kernel.congestion_controls import NAMES, is_mltcp
from mltcp_tools.lab.experiments.treatments import TREATMENTS, TreatmentSettings, read_treatments

ALONE = "alone"
_OWN_FIELDS = ("cc", "attached", "treatment")
_Settings = TypeVar("_Settings", bound=TreatmentSettings)
_FIELDS = [*_OWN_FIELDS, *(each.name for each in dataclasses.fields(JobParams))]


@dataclass(frozen=True)
class Variant:
    """One congestion control with the `JobParams` fields it is run with, and other treatments.

    attached: its flows are given to a job, as by the host's administrator; else they have only
    selected the congestion control, as by sysctl. treatments: what else is done to its jobs
    (treatments.py), at most one of a kind.
    """

    name: str
    cc: str
    parameters: dict[str, Any] = dataclasses.field(default_factory=dict)
    attached: bool = True
    treatments: tuple[TreatmentSettings, ...] = ()

    @property
    def params(self) -> JobParams:
        """Return the parameters of its jobs; what these leave out is learned."""
        return JobParams(**self.parameters)

    @property
    def is_mltcp(self) -> bool:
        """Return whether the variant runs through an MLTCP backend."""
        return is_mltcp(self.cc)

    def treatment(self, kind: type[_Settings]) -> _Settings | None:
        """The variant's treatment of that kind, if it has one."""
        return next((each for each in self.treatments if isinstance(each, kind)), None)

    def settings(self, kind: type[_Settings]) -> _Settings:
        """The same of a variant that is known to have it."""
        found = self.treatment(kind)
        assert found is not None
        return found

    def document(self) -> dict[str, Any]:
        """The variant as in an experiment's file, less its name."""
        own = {} if self.attached else {"attached": False}
        treatment = {each.name: each.document() for each in self.treatments}
        treated = {"treatment": treatment} if treatment else {}
        given = {key: value for key, value in self.parameters.items() if value is not None}
        return {"cc": self.cc} | given | own | treated


def read_variants(top: Section) -> tuple[Variant, ...]:
    """The variants of an experiment, those that `each` stands for among them."""
    section = top.section("variants", None)
    if section is None or not list(section):
        raise top.error(
            "missing; name at least one, for example `variants: {cubic: {cc: cubic}}`.", "variants"
        )
    variants: list[Variant] = []
    for name in section:
        described = section.section(name, _FIELDS)
        assert described is not None
        if name == ALONE or not values.NAME.fullmatch(name):
            raise section.error(
                f"{ALONE!r} is kept for the jobs' isolated runs."
                if name == ALONE
                else f"a variant's name has {values.NAME_IS}.",
                name,
            )
        variants.append(_read_variant(name, described))
    return tuple(variants)


def _read_variant(name: str, section: Section) -> Variant:
    cc = section.get("cc", congestion_control)
    for key in section:
        if key not in ("cc", "treatment") and not is_mltcp(cc):
            raise section.error(
                f"{cc} takes no parameters; only congestion controls named mltcp… do.", key
            )
    treatments = read_treatments(section.section("treatment", tuple(TREATMENTS)))
    for each in treatments:
        if each.cc not in (None, cc):
            raise section.error(
                f"{each.name} is for `cc: {each.cc}`; {cc} ignores it.", "treatment"
            )
    parameters = _read_parameters(section)
    attached = section.get("attached", values.yes_no, True)
    if not attached and parameters:
        raise section.error(
            "flows that aren't attached have no job, and so no parameters.", "attached"
        )
    return Variant(
        name,
        cc,
        parameters,
        attached=attached,
        treatments=treatments,
    )


def _read_parameters(section: Section) -> dict[str, Any]:
    types = typing.get_type_hints(JobParams)
    parameters: dict[str, Any] = {}
    for key in section:
        if key in _OWN_FIELDS:
            continue
        parameters[key] = section.get(key, values.of_type(types[key]))
        with section.complaints(key):
            JobParams(**{key: parameters[key]})
    return parameters


def congestion_control(value: object) -> str:
    """The name of a congestion control, or a UsageError."""
    if not isinstance(value, str) or not re.fullmatch(r"[a-z0-9_]{1,15}", value):
        raise UsageError(f"{value!r} is not the name of a congestion control, like cubic or mltcp.")
    if is_mltcp(value) and value not in NAMES:
        raise UsageError(f"{value!r} is not one of {', '.join(NAMES)}.")
    return value
