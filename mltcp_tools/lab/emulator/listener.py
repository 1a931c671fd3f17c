# SPDX-License-Identifier: BSD-2-Clause
"""The server's listening socket, and room for its connections."""

from __future__ import annotations

import contextlib
import errno
import resource
import socket

from mltcp_tools.base.errors import BusyError, HostError, MltcpError, UsageError

MAX_CONNECTIONS = 4096


def raise_descriptor_limit() -> int:
    """Allow as many descriptors as the system lets us; how many connections that is good for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_CONNECTIONS + 64
    if soft < wanted:
        soft = min(wanted, hard)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(1, min(MAX_CONNECTIONS, soft - 64))


def listen(port: int, bind: str | None) -> socket.socket:
    """A listening socket on `port` of address `bind` (None: all, IPv4 and IPv6).

    Raises UsageError (not an address of this host), BusyError (port in use) or HostError.
    """
    if bind is None and socket.has_dualstack_ipv6():
        family, address = socket.AF_INET6, "::"
    elif bind is None:
        family, address = socket.AF_INET, "0.0.0.0"
    else:
        try:
            found = socket.getaddrinfo(bind, port, type=socket.SOCK_STREAM)[0]
        except (OSError, UnicodeError) as error:
            raise UsageError(
                f"{bind!r} of --bind isn't an address; give one of this host's."
            ) from error
        family, address = found[0], str(found[4][0])
    try:
        return socket.create_server(
            (address, port),
            family=family,
            backlog=1024,
            dualstack_ipv6=bind is None and family == socket.AF_INET6,
        )
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise BusyError(
                f"Port {port} is in use on {address}; stop what listens there or choose another "
                "--port."
            ) from error
        if error.errno == errno.EADDRNOTAVAIL:
            raise UsageError(
                f"{address} isn't an address of this host; choose another --bind."
            ) from error
        if error.errno == errno.EACCES:
            raise HostError(
                f"Port {port} needs root; run as root or choose a --port above 1023."
            ) from error
        raise MltcpError(f"Can't listen on {address} port {port} ({error.strerror}).") from error


def peer_name(address: tuple[str, int] | tuple[str, int, int, int]) -> str:
    """`10.0.0.1 port 40000` of what accept returned."""
    host = address[0].removeprefix("::ffff:")
    return f"{host} port {address[1]}"
