# SPDX-License-Identifier: BSD-2-Clause
"""Values of fields of files: parsers that raise UsageError."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any

from mltcp_tools.base.errors import UsageError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,30}")
NAME_IS = "letters, digits, `_`, `.`, `+` and `-`, 31 at most"


def name(value: object) -> str:
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise UsageError(f"{value!r} is not a name; use {NAME_IS}.")
    return value


def number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UsageError(f"{value!r} is not a number.")
    return float(value)


def yes_no(value: object) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"{value!r} is neither true nor false.")
    return value


def whole(least: int, most: int | None = None) -> Callable[[object], Any]:
    def parse(value: object) -> int:
        upper = "" if most is None else f" to {most}"
        if (
            isinstance(value, bool)
            or not isinstance(value, int)
            or value < least
            or (most is not None and value > most)
        ):
            raise UsageError(f"{value!r} is not a whole number from {least}{upper or ' up'}.")
        return value

    return parse


def within(
    parse: Callable[[object], Any], least: float, most: float, unit: str
) -> Callable[[object], Any]:
    def checked(value: object) -> Any:
        found = parse(value)
        if not least <= found <= most:
            raise UsageError(f"{value!r} is outside {least:.6g} to {most:.6g} {unit}.")
        return found

    return checked


def choice(values: Collection[str]) -> Callable[[object], Any]:
    def parse(value: object) -> str:
        if value not in values:
            raise UsageError(f"{value!r} is not one of {', '.join(values)}.")
        return str(value)

    return parse


def weights(value: object) -> tuple[int, ...]:
    each = whole(1)
    if not isinstance(value, list):
        raise UsageError(f"{value!r} is not a list of whole numbers, one per flow.")
    return tuple(each(item) for item in value)


def words(value: object) -> tuple[str, ...]:
    words = value if isinstance(value, list) else [value]
    if not all(isinstance(word, str) for word in words):
        raise UsageError(f"{value!r} is not a word or a list of words.")
    return tuple(words)


def of_type(kind: Any) -> Callable[[object], Any]:
    if kind is int:
        return whole(0)
    if kind is float:
        return number
    return str if kind is str else words
