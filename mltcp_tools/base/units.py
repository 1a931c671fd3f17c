# SPDX-License-Identifier: BSD-2-Clause
"""Quantities as people write them: `200mbit`, `2.5MB`, `340ms`, `5%`.

One rule for all: a number has its unit, but for 0. Prefixes follow SI (1 kB = 1000 B); `KiB`, `MiB`
and `GiB` are powers of 1024. `B` is a byte and `bit` a bit; a lone `b`, which people use for
either, is refused. Every parser raises UsageError with the accepted forms when it can't read the
text.
"""

from __future__ import annotations

import math
import re

from mltcp_tools.base.errors import UsageError

_NUMBER = re.compile(
    r"\s*(?P<number>[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*(?P<unit>[A-Za-zµ%]*(?:/s)?)\s*"
)

_RATES = {
    f"{prefix}bit{per_second}": factor
    for prefixes, factor in (([""], 1), ("kK", 10**3), ("mM", 10**6), ("gG", 10**9))
    for prefix in prefixes
    for per_second in ("", "/s")
}
_BYTES = {
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
}
# What a number that floating point can't hold may be off by.
_WHOLE = 1e-9
_SECONDS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
_SECONDS |= {"m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}


def _parse(text: object, units: dict[str, float], what: str, examples: str) -> float:
    match = _NUMBER.fullmatch(str(text))
    if match is None:
        raise UsageError(f"{text!r} is not a {what}; write it like {examples}.")
    number, unit = float(match["number"]), match["unit"]
    if unit not in units and (unit or number):
        why = "" if unit else ", as it has no unit"
        raise UsageError(f"{text!r} is not a {what}{why}; write it like {examples}.")
    value = number * units.get(unit, 0.0)
    if not math.isfinite(value):
        raise UsageError(f"{text!r} is too large for a {what}.")
    return value


def parse_rate(text: object) -> int:
    """Bits per second from `200mbit`, `1gbit`, `25 Mbit/s`."""
    return round(_parse(text, dict(_RATES), "rate", "200mbit or 1gbit"))


def parse_bytes(text: object) -> int:
    """Bytes from `2.5MB`, `30kB`, `64KiB`."""
    value = _parse(text, dict(_BYTES), "size", "2.5MB, 30kB or 64KiB")
    if abs(value - round(value)) > _WHOLE * value:
        raise UsageError(f"{text!r} is not a whole number of bytes.")
    return round(value)


def parse_seconds(text: object) -> float:
    """Seconds from `340ms`, `0.34s`, `200us`, `2min` or `2m`, `3h`, `2d`."""
    return _parse(text, _SECONDS, "time", "340ms, 0.34s or 200us")


def parse_fraction(text: object) -> float:
    """A fraction from `5%` or `0.05`."""
    return _parse(text, {"": 1.0, "%": 0.01}, "fraction", "5% or 0.05")


def counted(count: int, what: str) -> str:
    """`1 connection`, `3 connections`; `what` is one of them."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def endpoint(address: str, port: int) -> str:
    """`10.0.0.1:80`, `[::1]:80`."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def exact_bytes(size: int) -> str:
    """`2500000B`, which `parse_bytes` reads as the same number."""
    return f"{size}B"


def exact_seconds(seconds: float) -> str:
    """`0.34s`, which `parse_seconds` reads as the same number."""
    return f"{seconds!r}s"


def format_rate(bits_per_second: float) -> str:
    """`200 Mbit/s` from bits per second."""
    return _scaled(bits_per_second, "bit/s")


def format_bytes(size: float) -> str:
    """`2.5 MB` from bytes."""
    return _scaled(size, "B")


def _scaled(value: float, unit: str) -> str:
    for factor, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{value / factor:.4g} {prefix}{unit}"
    return f"{value:.4g} {unit}"


def format_seconds(seconds: float) -> str:
    """`340 ms` from seconds, in the unit that gives a number between 1 and 1000."""
    for factor, unit in ((1.0, "s"), (1e-3, "ms")):
        if abs(seconds) >= factor:
            return f"{seconds / factor:.4g} {unit}"
    return f"{seconds * 1e6:.4g} us"
