# SPDX-License-Identifier: BSD-2-Clause
"""The words of processes on their jobs: names, and whether they want to be attached.

A process whose environment has MLTCP_ATTACH=off is left alone, whatever the rules say. A rule with
`opt_in` takes only those that have MLTCP_ATTACH=on. Where that is unknown (attach/environment.py),
the process is left alone. Names are what a rule's `job` may hold besides plain text.

{cgroup:REGEX}   what the expression finds in the path of the cgroup: its group, if it has one
{env:NAME}       the variable of the process's environment at its start
{pod}            the id of the Kubernetes pod, by its cgroup
"""

from __future__ import annotations

import re
from collections.abc import Callable

from mltcp_tools.base.errors import UsageError
from mltcp_tools.kernel.backends.base import Job
from mltcp_tools.live.attach.environment import Environments
from mltcp_tools.live.attach.processes import Process

ATTACH = "MLTCP_ATTACH"
_ON = ("1", "on", "true", "yes")
_OFF = ("0", "off", "false", "no")

_POD = re.compile(r"pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})")


def check_template(text: str) -> str:
    """The text, if names can be made of it; UsageError says what is wrong."""
    parts = list(_parts(text))
    for part in parts:
        if not isinstance(part, str):
            part.check()
    if all(isinstance(part, str) for part in parts):
        Job(1, text)
    return text


def is_template(text: str) -> bool:
    """Return whether names depend on the process."""
    return any(not isinstance(part, str) for part in _parts(text))


def variables(text: str) -> list[str]:
    """Names of the variables that the template asks for."""
    return [part.variable for part in _parts(text) if isinstance(part, _Field) and part.variable]


def name_of(text: str, process: Process, environments: Environments) -> str:
    """The name of the process's job. Empty where the process lacks what the template asks for, or
    where that makes no valid name."""
    found = []
    for part in _parts(text):
        value = part if isinstance(part, str) else part.of(process, environments)
        if not value:
            return ""
        found.append(value)
    try:
        return Job(1, "".join(found)).name
    except UsageError:
        return ""


def place_of(text: str, process: Process) -> str:
    """The cgroup that gives the process's job its name; empty where no cgroup does.

    Jobs of one name in two places are two: those of two containers count from 1 each.
    """
    places = [part.place(process) for part in _parts(text) if isinstance(part, _Field)]
    return max(places, key=len, default="")


def declines(said: str | None, opt_in: bool) -> bool:
    """Return whether a process is to be left alone. said: its MLTCP_ATTACH, None if unknown."""
    return said is None or said.lower() in _OFF or (opt_in and said.lower() not in _ON)


def unclear(said: str | None) -> bool:
    """Return whether an MLTCP_ATTACH means neither on nor off."""
    return said is not None and said.lower() not in ("", *_ON, *_OFF)


class _Field:
    """One field in braces."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._kind, _, self._value = text.partition(":")
        self.variable = self._value if self._kind == "env" else ""

    def check(self) -> None:
        """UsageError unless this is a field that there is."""
        if self._kind not in _KINDS or (self._value == "") != (self._kind == "pod"):
            raise UsageError(
                f"{{{self._text}}} is none of {{cgroup:REGEX}}, {{env:NAME}} and {{pod}}."
            )
        if self._kind == "cgroup":
            try:
                groups = re.compile(self._value).groups
            except re.error as error:
                raise UsageError(f"{self._value!r} is not a regular expression: {error}.") from None
            if groups > 1:
                raise UsageError(f"{self._value!r} has {groups} groups; one names the job.")

    def of(self, process: Process, environments: Environments) -> str:
        """Return what it stands for in this process's name; empty where that is nothing."""
        return _KINDS[self._kind](self._value, process, environments)

    def place(self, process: Process) -> str:
        """The path down to the cgroup in which the field is found; empty for other fields."""
        if self._kind not in ("cgroup", "pod"):
            return ""
        found = _in_cgroups(_POD if self._kind == "pod" else self._value, process)
        if found is None:
            return ""
        end = found.end(found.re.groups)  # of the group, or of all where there is none
        return found.string[:end] + found.string[end:].partition("/")[0]


def _parts(text: str) -> list[str | _Field]:
    """Plain text and fields, in turn; braces within a field belong to it."""
    found: list[str | _Field] = []
    begin = depth = 0
    for at, char in enumerate(text):
        if char == "{":
            if depth == 0:
                found += [text[begin:at]] if at > begin else []
                begin = at + 1
            depth += 1
        elif char == "}" and depth:
            depth -= 1
            if depth == 0:
                found.append(_Field(text[begin:at]))
                begin = at + 1
    if depth:
        raise UsageError(f"{text!r} has a brace that nothing closes.")
    return [*found, text[begin:]] if begin < len(text) else found


def _by_cgroup(pattern: str, process: Process, _: Environments) -> str:
    found = _in_cgroups(pattern, process)
    return "" if found is None else (found[1] or "") if found.re.groups else found[0]


def _in_cgroups(pattern: str | re.Pattern[str], process: Process) -> re.Match[str] | None:
    searched = (re.search(pattern, path) for path in process.cgroups)
    return next((found for found in searched if found), None)


def _by_environment(name: str, process: Process, environments: Environments) -> str:
    return environments.get(process, name) or ""


def _by_pod(_: str, process: Process, __: Environments) -> str:
    found = _in_cgroups(_POD, process)
    return "" if found is None else found[1].replace("_", "-")


_KINDS: dict[str, Callable[[str, Process, Environments], str]] = {
    "cgroup": _by_cgroup,
    "env": _by_environment,
    "pod": _by_pod,
}
