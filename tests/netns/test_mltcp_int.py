# SPDX-License-Identifier: BSD-2-Clause
"""Effects of `mltcp_int` on a connection, which it leaves as it was."""

from __future__ import annotations

import contextlib
import socket
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from netns.connections import connection_here
from netns.pacing import NEEDED, NOBODY, SO_MAX_PACING_RATE, choose, limit, listing, status

from mltcp_tools.kernel.backends.struct_ops import unregister
from mltcp_tools.kernel.native.bpf_object import BpfObject
from mltcp_tools.kernel.native.objects import build_object

RATE = 10_000_000
UNLIMITED = 0xFFFFFFFF

pytestmark = pytest.mark.bpf


@pytest.fixture
def registered() -> Iterator[None]:
    """`mltcp_int`, registered without the other programs."""
    root = Path(f"/sys/fs/bpf/mltcp-test-int-{uuid.uuid4().hex[:8]}")
    root.mkdir()
    try:
        with BpfObject(build_object("mltcp_int"), root) as programs:
            programs.register_struct_ops("mltcp_int")
            try:
                yield
            finally:
                unregister(["mltcp_int"])
    finally:
        for pin in root.iterdir():
            pin.unlink()
        root.rmdir()


@pytest.fixture
def pacing(tmp_path: Path) -> Iterator[Path]:
    with listing(tmp_path) as found:
        yield found


@contextlib.contextmanager
def following(pacing: Path, rate: int | None = None) -> Iterator[socket.socket]:
    """A connection that has changed to mltcp_int, limited to a rate before."""
    with connection_here("reno") as (sender, _):
        if rate is not None:
            limit(sender, rate)
        choose(sender, "mltcp_int")
        assert status(pacing, sender) == NEEDED
        yield sender


def test_a_connection_is_paced_only_while_it_runs_it(registered: None, pacing: Path) -> None:
    with following(pacing) as sender:
        choose(sender, "reno")
        assert status(pacing, sender) == NOBODY


def test_the_pacing_that_a_user_asked_for_before_stays(registered: None, pacing: Path) -> None:
    with following(pacing, RATE) as sender:
        choose(sender, "reno")
        assert status(pacing, sender) == NEEDED
        assert sender.getsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE) == RATE


def test_the_pacing_that_a_user_asked_for_meanwhile_stays(registered: None, pacing: Path) -> None:
    with following(pacing) as sender:
        limit(sender, RATE)
        choose(sender, "reno")
        assert status(pacing, sender) == NEEDED
    with following(pacing) as sender:
        limit(sender, RATE)
        limit(sender, UNLIMITED)
        choose(sender, "reno")
        assert status(pacing, sender) == NOBODY
