# SPDX-License-Identifier: BSD-2-Clause
"""The answers of sock_diag about this process's own sockets, which takes no privilege."""

from __future__ import annotations

import os
import socket

import pytest

from mltcp_tools.base.errors import HostError
from mltcp_tools.kernel.host import diag
from mltcp_tools.live.attach.processes import process
from mltcp_tools.live.attach.sockets import sockets


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_only_the_wanted_are_told(address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with (
        socket.create_server((address, 0), family=family) as listener,
        socket.create_connection(listener.getsockname()[:2]) as sender,
        diag.open_diag() as asking,
    ):
        inode = os.fstat(sender.fileno()).st_ino
        found = diag.tcp_sockets(asking, {inode, 1})
        assert diag.tcp_sockets(asking, set()) == {}
        assert list(found) == [inode]
        assert found[inode].remote == listener.getsockname()[:2]
        assert found[inode].local == sender.getsockname()[:2]
        assert sender.fileno() in {each.fd for each in sockets(process(os.getpid()))}


def test_a_kernel_that_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diag, "_SOCK_DIAG_BY_FAMILY", 4242)
    with diag.open_diag() as asking, pytest.raises(HostError, match="modprobe tcp_diag"):
        diag.tcp_sockets(asking, {1})
