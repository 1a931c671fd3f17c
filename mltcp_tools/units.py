"""Quantities as people write them: `200mbit`, `2.5MB`, `340ms`, `5%`.

Prefixes follow SI (1 kB = 1000 B); `KiB`, `MiB` and `GiB` are powers of 1024. Every parser raises
UsageError with the accepted forms when it can't read the text.
"""

from __future__ import annotations

import math
import re

from mltcp_tools.errors import UsageError

_NUMBER = re.compile(
    r"\s*(?P<number>[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*(?P<unit>[A-Za-zµ%]*)\s*"
)

_RATES = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
_BYTES = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
}
_SECONDS = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "min": 60.0}


def _parse(text: object, units: dict[str, float], what: str, examples: str) -> float:
    match = _NUMBER.fullmatch(str(text))
    unit = match["unit"].lower() if match else None
    if match is None or unit not in units:
        raise UsageError(f"{text!r} is not a {what}; write it like {examples}.")
    value = float(match["number"]) * units[unit]
    if not math.isfinite(value):
        raise UsageError(f"{text!r} is too large for a {what}.")
    return value


def parse_rate(text: object) -> int:
    """Bits per second from `200mbit`, `1gbit`; the unit is required."""
    return round(_parse(text, dict(_RATES), "rate", "200mbit or 1gbit"))


def parse_bytes(text: object) -> int:
    """Bytes from `2.5MB`, `30kB`, `64KiB` or a plain number."""
    return round(_parse(text, dict(_BYTES), "size", "2.5MB, 30kB or 64KiB"))


def parse_seconds(text: object) -> float:
    """Seconds from `340ms`, `0.34s`, `200us` or a plain number of seconds."""
    return _parse(text, _SECONDS, "time", "340ms, 0.34s or 200us")


def parse_fraction(text: object) -> float:
    """A fraction from `5%` or `0.05`."""
    return _parse(text, {"": 1.0, "%": 0.01}, "fraction", "5% or 0.05")


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
