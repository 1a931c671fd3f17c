# SPDX-License-Identifier: BSD-2-Clause
"""Connections between ranks, beside callers that are none of them."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.aggregation.threads import Ranks

from mltcp_tools.collectives.adaptive.mesh import Mesh, receive
from mltcp_tools.collectives.session import SessionError

ALL = [(7, i, j) for i in range(3) for j in range(3) if i != j]


def test_silent_or_nonsense_callers_delay_nobody() -> None:
    """Heard one after the other, forty silent ones would take forty timeouts."""
    meshes: dict[int, Mesh] = {}

    def work(rank: int, gather: Any) -> dict[Any, bytes]:
        with contextlib.closing(Mesh(rank, 3, "127.0.0.1", gather, 5.0)) as mesh:
            meshes[rank] = mesh
            gather(None)
            strangers = [socket.create_connection(each) for each in mesh._addresses * 14]
            for number, each in enumerate(strangers):
                if number % 2:
                    each.sendall(os.urandom(number))
            gather(None)
            made = mesh.connect(ALL)
            for (_, source, to), each in made.items():
                if source == rank:
                    each.sendall(struct.pack("=II", source, to))
            heard = {name: receive(each, 8) for name, each in made.items() if name[2] == rank}
            for each in strangers:
                each.close()
            gather(None)
            return heard

    for found in Ranks(3).run(work):
        assert not isinstance(found, Exception), found
        assert len(found) == 2
        for (_, source, to), said in found.items():
            assert struct.unpack("=II", said) == (source, to)


def test_an_address_of_another_host_is_named() -> None:
    with pytest.raises(
        SessionError, match=r"Rank 0 can't listen at 203\.0\.113\.1 \(.*MASTER_ADDR"
    ):
        Mesh(0, 1, "203.0.113.1", lambda what: [what], 5.0)


@settings(max_examples=200)
@given(st.binary(max_size=40))
def test_no_greeting_but_one_with_the_key_names_a_connection(hello: bytes) -> None:
    mesh = Mesh(0, 1, "127.0.0.1", lambda what: [what], 5.0)
    try:
        assert mesh._name_in(hello) is None
        assert mesh._name_in(mesh._key + struct.pack("=IIII", mesh.series, 1, 2, 0)) == (1, 2, 0)
    finally:
        mesh.close()


def test_closing_ends_what_waits_for_calls() -> None:
    mesh = Mesh(0, 2, "127.0.0.1", lambda what: [what, what], 60.0)
    threading.Timer(0.1, mesh.close).start()
    with pytest.raises(SessionError, match="could not reach all others"):
        mesh.connect([(1, 1, 0)])
