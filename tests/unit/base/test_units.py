# SPDX-License-Identifier: BSD-2-Clause
"""Quantities: one rule for what is read, and what is written is read again."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltcp_tools.base.errors import UsageError
from mltcp_tools.base.units import (
    exact_bytes,
    exact_seconds,
    format_bytes,
    format_rate,
    parse_bytes,
    parse_rate,
    parse_seconds,
)


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (parse_bytes, "2.5MB", 2_500_000),
        (parse_bytes, "64 KiB", 65_536),
        (parse_bytes, "0", 0),
        (parse_rate, "200mbit", 200_000_000),
        (parse_rate, "2.5 Gbit/s", 2_500_000_000),
        (parse_seconds, "340ms", 0.34),
        (parse_seconds, "2min", 120.0),
        (parse_seconds, "1.5h", 5400.0),
        (parse_seconds, "1.5e-3s", 0.0015),
    ],
)
def test_quantities_are_read(parse: Callable[[object], float], text: str, value: float) -> None:
    assert parse(text) == pytest.approx(value)


@pytest.mark.parametrize(
    ("parse", "text", "complaint"),
    [
        (parse_bytes, "2.5", "has no unit"),
        (parse_bytes, 2_500_000, "has no unit"),
        (parse_bytes, "30Mb", "is not a size"),  # megabits, to many
        (parse_bytes, "2.5B", "is not a whole number of bytes"),
        (parse_bytes, "-1MB", "is not a size"),
        (parse_rate, "200", "has no unit"),
        (parse_rate, "25MB/s", "is not a rate"),
        (parse_seconds, "170", "has no unit"),
        (parse_seconds, 0.17, "has no unit"),
        (parse_seconds, "170M", "is not a time"),
    ],
)
def test_what_could_mean_two_things_is_refused(
    parse: Callable[[object], float], text: object, complaint: str
) -> None:
    with pytest.raises(UsageError, match=complaint):
        parse(text)


@given(st.integers(0, 10**15), st.floats(0, 1e9))
def test_what_is_written_exactly_is_read_the_same(size: int, seconds: float) -> None:
    assert parse_bytes(exact_bytes(size)) == size
    assert parse_seconds(exact_seconds(seconds)) == seconds


@given(st.integers(1, 9999), st.sampled_from([1, 10**3, 10**6, 10**8]))
def test_what_is_shown_is_read(number: int, factor: int) -> None:
    assert parse_rate(format_rate(number * factor)) == number * factor
    assert parse_bytes(format_bytes(number * factor)) == number * factor
