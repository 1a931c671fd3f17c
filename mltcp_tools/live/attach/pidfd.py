# SPDX-License-Identifier: BSD-2-Clause
"""A socket of another process, borrowed for a moment, and its congestion control."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from mltcp_tools.base.errors import MltcpError
from mltcp_tools.kernel.congestion_controls import asked_as, needs_ecn
from mltcp_tools.kernel.host.descriptors import cookie_of, pidfd_getfd
from mltcp_tools.kernel.host.tcpstates import tcp_state
from mltcp_tools.live.attach.processes import is_running
from mltcp_tools.live.attach.sockets import CAN_SEND

_NAME_SIZE = 16
"""TCP_CA_NAME_MAX of net/tcp.h."""


class Gone(Exception):
    """The socket or its process isn't there any more. str(): why, as part of a sentence."""


@contextmanager
def borrowed(pid: int, start_ticks: int, fd: int, cookie: int | None) -> Iterator[socket.socket]:
    """Our own descriptor of the socket of that cookie (None: any), which the process has as `fd`.

    Closed on leaving: as long as it is open, the connection outlives the process's close. Its file
    description is the process's own, so flags (such as blocking) must not be touched. Raises Gone,
    or PermissionError where this process may not reach into that one.
    """
    copy = _copy_descriptor(pid, start_ticks, fd)
    try:
        found = socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        raise Gone(f"descriptor {fd} is no longer a socket") from None
    with found:
        if cookie not in (None, cookie_of(found)):
            raise Gone(f"descriptor {fd} now refers to another socket")
        yield found


def _copy_descriptor(pid: int, start_ticks: int, fd: int) -> int:
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        raise Gone("the process has ended") from None
    try:
        # In this order: whoever has the pid now, and is the process that was meant, had it before.
        if not is_running(pid, start_ticks):
            raise Gone("the process has ended, and another process has its pid now")
        return pidfd_getfd(pidfd, fd)
    except ProcessLookupError:
        raise Gone("the process has ended") from None
    except OSError as error:
        if error.errno == errno.EBADF:
            raise Gone("the socket was closed") from None
        raise
    finally:
        os.close(pidfd)


def check_can_send(sock: socket.socket) -> None:
    """Gone when the connection has ended, although the process hasn't closed its end of it."""
    if _state(sock) not in CAN_SEND:
        raise Gone("the connection has ended")


def _state(sock: socket.socket) -> str:
    # tcpi_state comes first
    return tcp_state(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0])


def congestion_control(sock: socket.socket) -> str:
    """Name of the one the socket runs, as the kernel says."""
    name: bytes = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, _NAME_SIZE)
    return name.partition(b"\0")[0].decode(errors="replace")


def set_congestion_control(sock: socket.socket, name: str) -> None:
    """Switch the socket and read it back. MltcpError says, as part of a sentence, why it failed."""
    if (actual := _give(sock, name)) != name:
        raise MltcpError(f"the kernel accepted {name} but the socket runs {actual}")


def put_back(sock: socket.socket, name: str) -> str:
    """Switch the socket to what it ran, or was to run, before; return what it runs now.

    Without ECN something else comes in place of what needs that. The kernel's dctcp isn't chosen
    before the peer has answered: until then the kernel notes that both ends have agreed.
    """
    name = asked_as(name)
    if name == "dctcp" and _state(sock) == "syn-sent":
        name = "reno"
    if (actual := _give(sock, name)) != name and not needs_ecn(name):
        raise MltcpError(f"the kernel accepted {name} but the socket runs {actual}")
    return actual


def _give(sock: socket.socket, name: str) -> str:
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
    except OSError as error:
        raise MltcpError(refusal(error.errno or 0, name, str(error.strerror))) from error
    return congestion_control(sock)


def refusal(code: int, name: str, otherwise: str) -> str:
    """Return why the kernel didn't give a socket the congestion control; a part of a sentence."""
    return _REASONS.get(code, otherwise).format(name)


_REASONS = {
    errno.ENOENT: "the kernel has no congestion control {} (or no longer has it)",
    errno.EPERM: "the kernel refuses {} there: the socket's route fixes another one (`ip route …"
    " congctl NAME lock`), or it is restricted and CAP_NET_ADMIN is missing in that namespace",
    errno.EOPNOTSUPP: "{} needs ECN, on which the ends of the connection haven't agreed",
}
