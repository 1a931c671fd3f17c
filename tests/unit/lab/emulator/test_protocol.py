# SPDX-License-Identifier: BSD-2-Clause
"""Records and streams between client and server, and what damaged ones lead to."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltcp_tools.lab.emulator.protocol import (
    BurstHeader,
    Confirmation,
    Hello,
    ProtocolError,
    Welcome,
)

HELLO = Hello("both", "mltcp_cubic")
RECORDS = [
    HELLO,
    Welcome(True, "cubic"),
    Welcome(False, "This host has no congestion control."),
    BurstHeader(7, 2_500_000, 0),
    BurstHeader(0xFFFFFFFF, 64, 1 << 40),
    Confirmation(7, 2_500_000, 12),
]
KINDS = [Hello, Welcome, BurstHeader, Confirmation]


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_any_bytes_are_read_or_refused(
    kind: type[Hello | Welcome | BurstHeader | Confirmation], data: st.DataObject
) -> None:
    good = next(record.pack() for record in RECORDS if isinstance(record, kind))
    changed = bytearray(good)
    for place in data.draw(st.lists(st.integers(0, len(good) - 1), max_size=4)):
        changed[place] = data.draw(st.integers(0, 255))
    noise = data.draw(st.binary(max_size=2 * len(good)))
    for candidate in (bytes(changed), noise):
        with contextlib.suppress(ProtocolError):
            kind.unpack(candidate)


def test_other_version_is_named() -> None:
    data = bytearray(HELLO.pack())
    data[8] = 9
    with pytest.raises(ProtocolError, match="version 9"):
        Hello.unpack(bytes(data))


def test_impossible_hello() -> None:
    with pytest.raises(ProtocolError, match="impossible"):
        Hello.unpack(Hello("send", "../../x").pack())


def test_refusal_can_not_upset_a_terminal() -> None:
    refusal = Welcome.unpack(Welcome(False, "no\x1b[2J\nway").pack())
    assert refusal.text == "no[2Jway"
