# SPDX-License-Identifier: BSD-2-Clause
"""Fields that are declared once, where a dataclass has them: what they may be, what they mean, and
whether the simulator knows them. Files are read and written by these declarations; options, manual
pages and tables are made of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass
from typing import Any

import yaml

from mltcp_tools.base.cells import markdown
from mltcp_tools.base.document import Section
from mltcp_tools.base.errors import UsageError

_KEY = "declared"


@dataclass(frozen=True)
class Declared:
    """The description of a field.

    read: makes its value of what a file says, or raises UsageError. kind: what that is, in a word.
    help: what it means. write: makes of the value what `read` takes; None: it takes the value
    itself. missing: the value where a file doesn't say it, of a field that the class has no default
    for. simulated: the simulator knows it; experiments that have another one are refused there.
    option: the emulator's command has it. needs: the field without which it says nothing. several:
    it is a list. words: all that it may be, where these are few. inner: the class of a mapping,
    whose fields are declared in turn.
    """

    read: Callable[[object], Any]
    kind: str
    help: str
    write: Callable[[Any], Any] | None = None
    missing: Any = None
    simulated: bool = False
    option: bool = False
    needs: str | None = None
    several: bool = False
    words: tuple[str, ...] = ()
    inner: type[Any] | None = None

    def parse(self, text: str) -> Any:
        """The value of a command line's word; raises UsageError."""
        words = text.split(",") if self.several else [text]
        try:
            values = [yaml.safe_load(word) for word in words]
        except yaml.YAMLError:
            raise UsageError(f"{text!r} can't be read as a value.") from None
        return self.read(values if self.several else values[0])

    def shown(self, value: Any) -> Any:
        """A value as files have it."""
        if self.inner is not None:
            return document_of(value)
        return value if self.write is None else self.write(value)


def declared(
    read: Callable[[object], Any], kind: str, help: str, *, default: Any = MISSING, **known: Any
) -> Any:
    """A dataclass's field with its declaration; `known`: other fields of `Declared`."""
    return dataclasses.field(default=default, metadata={_KEY: Declared(read, kind, help, **known)})


def mapping(inner: type[Any], help: str, **known: Any) -> Any:
    """An optional field that is a mapping of the declared fields of `inner`."""
    return declared(_never, "mapping", help, default=None, inner=inner, **known)


def declarations(kind: type[Any]) -> Iterator[tuple[dataclasses.Field[Any], Declared]]:
    """The fields of a dataclass with their declarations."""
    return ((each, each.metadata[_KEY]) for each in dataclasses.fields(kind))


def default_of(each: dataclasses.Field[Any]) -> Any:
    """Return the value of a declared field that a file doesn't give; MISSING where it must."""
    known: Declared = each.metadata[_KEY]
    return each.default if known.missing is None else known.missing


def names(kind: type[Any]) -> list[str]:
    """The fields that a file may have: no others are known to anybody."""
    return [each.name for each, _ in declarations(kind)]


def read_fields(section: Section, kind: type[Any]) -> dict[str, Any]:
    """The fields in a file's mapping, defaults filled in; a UsageError names file, line, field."""
    found: dict[str, Any] = {}
    for each, known in declarations(kind):
        if known.inner is not None:
            inner = section.section(each.name, names(known.inner))
            if inner is not None:
                found[each.name] = known.inner(**read_fields(inner, known.inner))
        elif each.name in section or default_of(each) is MISSING:
            found[each.name] = section.get(each.name, known.read)
        else:
            found[each.name] = default_of(each)
        if known.needs is not None and each.name in section and known.needs not in section:
            raise section.error(f"belongs to a `{known.needs}`; give that, too.", each.name)
    return found


def document_of(value: Any) -> dict[str, Any]:
    """A dataclass as files have it: all that is there, defaults too."""
    return {
        each.name: known.shown(own)
        for each, known in declarations(type(value))
        if (own := getattr(value, each.name)) is not None and own != ()
        if known.needs is None or getattr(value, known.needs) is not None
    }


def not_simulated(value: Any) -> list[str]:
    """The fields that the simulator doesn't know and that aren't what they are by default."""
    return [
        each.name
        for each, known in declarations(type(value))
        if not known.simulated and getattr(value, each.name) != default_of(each)
    ]


def fields_table(kind: type[Any]) -> str:
    """All fields for readers, as Markdown; those of mappings behind a dot."""
    return markdown([["field", "", "default", "meaning"], *_rows(kind, "")])


def _rows(kind: type[Any], before: str) -> Iterator[list[str]]:
    for each, known in declarations(kind):
        name = before + each.name
        if known.inner is not None:
            yield [f"`{name}`", known.kind, "", known.help]
            yield from _rows(known.inner, f"{name}.")
            continue
        default = default_of(each)
        said = "" if default in (None, (), MISSING) else f"{known.shown(default)}"
        measured = "" if known.simulated or before else " (measured only)"
        yield [
            f"`{name}`",
            known.kind,
            "required" if default is MISSING else said,
            known.help + measured,
        ]


def _never(value: object) -> Any:
    raise AssertionError(f"{value!r} is read field by field")
