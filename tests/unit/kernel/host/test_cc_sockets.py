# SPDX-License-Identifier: BSD-2-Clause
"""Sockets and network namespaces of processes that may not be looked into."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import replace

import pytest

from mltcp_tools.kernel.host.cc_sockets import _with_holders, driven
from mltcp_tools.kernel.host.namespaces import hidden_processes

NOBODY = 65534

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def as_nobody(do: Callable[[], str]) -> str:
    """Return the text that a child of another user makes."""
    there, here = os.pipe()
    if not (child := os.fork()):
        os.setresuid(NOBODY, NOBODY, NOBODY)
        os.write(here, do().encode())
        os._exit(0)
    os.close(here)
    with open(there) as text:
        found = text.read()
    os.waitpid(child, 0)
    return found


def test_hidden_processes_are_counted() -> None:
    assert int(as_nobody(lambda: str(hidden_processes()))) > hidden_processes()


def test_socket_of_a_hidden_process_is_not_said_to_be_nobodys() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        name = listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).split(b"\0")[0]
        (own,) = (each for each in driven([name.decode()]) if each.local == listener.getsockname())

        def shown() -> str:
            listener.close()
            (seen,) = _with_holders([replace(own, pid=0, fd=-1)])
            return str(seen)

        assert f"process {os.getpid()}" in str(own)
        assert "may not look into" in as_nobody(shown)
