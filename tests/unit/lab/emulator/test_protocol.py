# SPDX-License-Identifier: BSD-2-Clause
"""Records and streams between client and server, and what damaged ones lead to."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

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
from mltcp_tools.lab.emulator.stream import CHUNK, Incoming, Outgoing, PeerClosed

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


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_round_trip(record: Hello | Welcome | BurstHeader | Confirmation) -> None:
    assert type(record).unpack(record.pack()) == record


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


@pytest.mark.parametrize("size", [1, 63, (1 << 40) + 1, (1 << 64) - 1])
def test_impossible_burst(size: int) -> None:
    with pytest.raises(ProtocolError, match="impossible burst"):
        BurstHeader.unpack(BurstHeader(1, size, 0).pack())


def test_refusal_can_not_upset_a_terminal() -> None:
    refusal = Welcome.unpack(Welcome(False, "no\x1b[2J\nway").pack())
    assert refusal.text == "no[2Jway"


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    left, right = socket.socketpair()
    left.setblocking(False)
    right.setblocking(False)
    with left, right:
        yield left, right


@pytest.mark.parametrize("body", [0, 1, 1000, CHUNK, CHUNK + 1, 5 * CHUNK + 17])
def test_burst_arrives_whole_and_nothing_more(
    pair: tuple[socket.socket, socket.socket], body: int
) -> None:
    left, right = pair
    outgoing = Outgoing(b"head", body)
    head = Incoming(record=4)
    while not head.done:
        outgoing.pump(left)
        head.pump(right)
    assert head.record == b"head"
    incoming = Incoming(body, record=4)
    while not outgoing.done:
        outgoing.pump(left)
        incoming.pump(right)
    while incoming.pump(right) is False and not _empty(right):
        pass
    assert not incoming.done
    left.send(b"tail!")
    assert incoming.pump(right)
    assert incoming.record == b"tail"
    assert right.recv(10) == b"!"


def _empty(sock: socket.socket) -> bool:
    try:
        return not sock.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True


def test_end_of_stream_is_an_error(pair: tuple[socket.socket, socket.socket]) -> None:
    left, right = pair
    left.send(b"he")
    left.close()
    incoming = Incoming(record=4)
    assert not incoming.pump(right)
    with pytest.raises(PeerClosed):
        incoming.pump(right)
