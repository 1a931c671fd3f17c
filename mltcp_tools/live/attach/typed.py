# SPDX-License-Identifier: BSD-2-Clause
"""Values of JSON as the dataclasses that they were written from, with each type checked."""

from __future__ import annotations

import dataclasses
import math
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

_T = TypeVar("_T")


def parsed(kind: type[_T], value: Any) -> _T:
    """The value as a dataclass. ValueError says which part is missing, or of another type.

    Fields may be dataclasses, tuples, X | None, text, booleans, whole and finite numbers.
    """
    found: _T = _parsed(kind, value, kind.__name__)
    return found


def _parsed(kind: Any, value: Any, what: str) -> Any:
    if type(value) is kind and kind is not float:
        return value
    if kind is float:
        if type(value) in (int, float) and math.isfinite(value):
            return value
    elif get_origin(kind) is UnionType:
        if value is None and NoneType in get_args(kind):
            return None
        (other,) = (each for each in get_args(kind) if each is not NoneType)
        return _parsed(other, value, what)
    elif get_origin(kind) is tuple:
        if isinstance(value, list):
            return _tuple(get_args(kind), value, what)
    elif isinstance(kind, type) and dataclasses.is_dataclass(kind):
        hints = _hints(kind)
        if not isinstance(value, dict) or value.keys() != hints.keys():
            raise ValueError(f"{what} doesn't have exactly the fields {', '.join(hints)}")
        return kind(**{name: _parsed(hint, value[name], name) for name, hint in hints.items()})
    raise ValueError(f"{what} is {value!r}")


def _tuple(kinds: tuple[Any, ...], values: list[Any], what: str) -> tuple[Any, ...]:
    if kinds[-1] is Ellipsis:
        return tuple(_parsed(kinds[0], each, what) for each in values)
    if len(kinds) != len(values):
        raise ValueError(f"{what} is {values!r}")
    return tuple(_parsed(kind, each, what) for kind, each in zip(kinds, values, strict=True))


@cache
def _hints(kind: Any) -> dict[str, Any]:
    """The types of a dataclass's fields."""
    return get_type_hints(kind)
