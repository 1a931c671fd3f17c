# SPDX-License-Identifier: BSD-2-Clause
"""A YAML document whose values know where they stand: every complaint names file and line."""

from __future__ import annotations

import contextlib
import difflib
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final, TypeVar

import yaml

from mltcp_tools.base.errors import UsageError

T = TypeVar("T")


def meant(word: str, known: Iterable[str], otherwise: str = ".") -> str:
    """The end of a sentence that refuses a word: the nearest of those known, if one is near."""
    near = difflib.get_close_matches(word, list(known), 1)
    return f"; did you mean {near[0]}?" if near else otherwise


class _Required:
    """Marks a field that has no default."""


REQUIRED: Final = _Required()


class Section:
    """One mapping of a YAML file, read field by field.

    `path` is where the section hangs in the document (`jobs[2].straggler`), `""` for the top.
    `node` is its mapping in the document; `nodes` has the values' nodes by field.
    Building one fails if the node is not a mapping or has a field twice or one not in `allowed`;
    with `allowed` None every field is taken.
    """

    def __init__(
        self, file: str, node: yaml.Node, path: str, allowed: Collection[str] | None
    ) -> None:
        self.file = file
        self.path = path
        if not isinstance(node, yaml.MappingNode):
            raise self._error(node, path, f"must be a mapping, not {_describe(node)}.")
        self.node = node
        self.nodes: dict[str, yaml.Node] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise self._error(key_node, path, "field names must be plain words.")
            key = str(key_node.value)
            if allowed is not None and key not in allowed:
                raise self._error(
                    key_node,
                    self._name(key),
                    f"no such field{meant(key, allowed)} Allowed: {', '.join(allowed)}.",
                )
            if key in self.nodes:
                raise self._error(key_node, self._name(key), "given twice; keep one.")
            self.nodes[key] = value_node

    def __iter__(self) -> Iterator[str]:
        """The fields present, in the file's order."""
        return iter(self.nodes)

    def get(self, key: str, parse: Callable[[object], T], default: T | _Required = REQUIRED) -> T:
        """The field's value through `parse`, or `default` where it is absent.

        A UsageError of `parse` comes back with file, line and field in front.
        """
        if key not in self.nodes:
            if isinstance(default, _Required):
                raise self._error(self.node, self._name(key), "missing, and it has no default.")
            return default
        node = self.nodes[key]
        try:
            return parse(self._value(key))
        except UsageError as error:
            raise self._error(node, self._name(key), str(error)) from error

    def section(self, key: str, allowed: Collection[str] | None) -> Section | None:
        """The mapping under `key`, or None where the field is absent."""
        if key not in self.nodes:
            return None
        return Section(self.file, self.nodes[key], self._name(key), allowed)

    def sections(
        self, key: str, allowed: Collection[str] | None, empty: bool = False
    ) -> list[Section]:
        """The list of mappings under `key`; it must be there, and have some unless it may be
        empty."""
        node = self.nodes.get(key)
        if node is None:
            raise self._error(self.node, self._name(key), "missing, and it has no default.")
        if not isinstance(node, yaml.SequenceNode) or not (node.value or empty):
            raise self._error(
                node,
                self._name(key),
                "must be a list with at least one entry; begin it with `- {`.",
            )
        return [
            Section(self.file, item, f"{self._name(key)}[{number}]", allowed)
            for number, item in enumerate(node.value, 1)
        ]

    def of(self, node: yaml.Node, path: str, allowed: Collection[str] | None) -> Section:
        """A section of the same file made of another `node`, which hangs at `path`."""
        return Section(self.file, node, path, allowed)

    def error(self, message: str, key: str | None = None) -> UsageError:
        """A UsageError that points at `key`, or at the whole section."""
        if key is None:
            return self._error(self.node, self.path, message)
        return self._error(self.nodes.get(key, self.node), self._name(key), message)

    @contextlib.contextmanager
    def complaints(self, key: str | None = None) -> Iterator[None]:
        """Put file, line and `key`, or the section, before a UsageError that doesn't have them."""
        try:
            yield
        except UsageError as error:
            if str(error).startswith(f"{self.file}:"):
                raise
            raise self.error(str(error), key) from None

    def _value(self, key: str) -> object:
        node = self.nodes[key]
        if isinstance(node, yaml.MappingNode):
            raise UsageError(f"must be a value, not {_describe(node)}.")
        loader = yaml.SafeLoader("")
        try:
            value: object = loader.construct_object(node, deep=True)
        except (yaml.YAMLError, ValueError, LookupError, ArithmeticError):
            # PyYAML leaves the 13th month, numbers of 5000 digits and the like to Python.
            what = textwrap.shorten(_describe(node), 40, placeholder="…")
            raise UsageError(f"{what} can't be read as a value.") from None
        return value

    def _name(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def _error(self, node: yaml.Node, name: str, message: str) -> UsageError:
        line = node.start_mark.line + 1 if node.start_mark else 1
        return UsageError(f"{self.file}:{line}: {name + ': ' if name else ''}{message}")


def read_section(text: str, file: str, allowed: Collection[str] | None) -> Section:
    """The top mapping of the YAML `text`; `file` is its name for messages, `allowed` as above."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise UsageError(f"{file}:{line}: not valid YAML: {error.problem}.") from None
    except yaml.YAMLError as error:
        raise UsageError(f"{file}: not valid YAML: {' '.join(str(error).split())}.") from None
    except RecursionError:
        raise UsageError(f"{file}: not readable: lists within lists without end.") from None
    if node is None:
        raise UsageError(f"{file}:1: the file is empty; it needs {', '.join(allowed or [])}.")
    return Section(file, node, "", allowed)


def _describe(node: yaml.Node) -> str:
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    # A file that is no YAML may be one long text.
    return repr(textwrap.shorten(node.value, 80, placeholder="…")) if node.value else "nothing"
