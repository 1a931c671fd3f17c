# SPDX-License-Identifier: BSD-2-Clause
"""The refusals of every backend, in the same words."""

from __future__ import annotations

import os
import socket
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from mltcp_tools.base.errors import BusyError, MltcpError, UsageError
from mltcp_tools.kernel.backends.base import Backend, Flow, Status
from mltcp_tools.kernel.congestion_controls import NAMES
from mltcp_tools.kernel.host.cc_sockets import Driven, driven
from mltcp_tools.kernel.host.descriptors import cookie_of
from mltcp_tools.kernel.host.leases import leases
from mltcp_tools.kernel.host.namespaces import defaults

_FEW = 3
"""An error names so many of what holds something."""


def check_offered(backend: str, names: Sequence[str], offered: Sequence[str]) -> None:
    """UsageError for a name that the backend doesn't offer."""
    for name in names:
        if name not in offered:
            elsewhere = " (another backend has it)" if name in NAMES else ""
            raise UsageError(
                f"The {backend} backend has no {name}{elsewhere}; it has {', '.join(offered)}."
            )


def not_loaded(backend: str) -> MltcpError:
    """Return the error for requests to a backend that isn't there."""
    return MltcpError(f"The {backend} backend isn't loaded; run `mltcp load`.")


def loaded_already(names: Sequence[str]) -> BusyError:
    """Return the error for defaults given for what is loaded."""
    return BusyError(
        f"{', '.join(names)} are loaded with their own defaults; run `mltcp unload` first."
    )


def no_job(job_id: int) -> UsageError:
    """Return the error for a job that isn't set."""
    return UsageError(f"There is no job {job_id}; `mltcp status` shows those that are set.")


def check_unused(backend: str, sockets: Collection[Flow | Driven], names: Collection[str]) -> None:
    """BusyError while anything on this host holds the names, or somebody works with the backend.

    What holds them is named: defaults of network namespaces, other processes' leases, sockets.
    """
    check_no_default(names)
    if users := leases(backend):
        raise BusyError(f"In use by {', '.join(map(str, users))}; stop that first, or use --force.")
    if sockets:
        raise BusyError(
            f"{len(sockets)} sockets still run MLTCP ({usage(sockets)}); close or switch them"
            " (`mltcp detach`), or use --force: they then continue as their base algorithm until"
            " they close."
        )
    if names and (others := driven(names)):
        raise BusyError(
            f"{len(others)} sockets hold {', '.join(names)}: {few(others)}; close or switch them,"
            " or use `mltcp unload --everything`."
        )


def check_no_default(names: Collection[str]) -> None:
    """BusyError while one of the names is the default of any network namespace of this host.

    Its new connections would go on to use it, also when its name is long forgotten.
    """
    found = [(each, name) for each, name in defaults() if name in names]
    if found:
        namespace, name = found[0]
        more = f" and of {len(found) - 1} more network namespaces" if len(found) > 1 else ""
        raise BusyError(
            f"{name} is the default of {namespace.name}{more}; set another one there first: sysctl"
            " net.ipv4.tcp_congestion_control=cubic, or use `mltcp unload --everything`."
        )


def few(found: Sequence[object]) -> str:
    """The first of them, and how many there are besides."""
    more = f" and {len(found) - _FEW} more" if len(found) > _FEW else ""
    return ", ".join(map(str, found[:_FEW])) + more


def usage(sockets: Collection[Flow | Driven]) -> str:
    """Return the number of sockets that each congestion control drives, by name: a dump has no
    order of its own.
    """
    used = Counter(each.congestion_control for each in sockets)
    return ", ".join(f"{count} by {name}" for name, count in sorted(used.items()))


@contextmanager
def _tcp_socket(fd: int) -> Iterator[socket.socket]:
    """A second descriptor of the TCP socket behind fd; UsageError when it is none."""
    try:
        copy = os.dup(fd)
    except (OSError, OverflowError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"Descriptor {fd} is not a socket: {reason}.") from error
    try:
        found = socket.socket(fileno=copy)
    except OSError as error:
        os.close(copy)
        raise UsageError(f"Descriptor {fd} is not a socket: {error.strerror}.") from error
    with found:
        if (
            found.family not in (socket.AF_INET, socket.AF_INET6)
            or found.type != socket.SOCK_STREAM
            or found.proto != socket.IPPROTO_TCP
        ):
            raise UsageError(f"Descriptor {fd} is not a TCP socket.")
        yield found


def check_tcp(fd: int) -> None:
    """UsageError unless the descriptor is a TCP socket."""
    with _tcp_socket(fd):
        pass


def check_taggable(fd: int, names: Sequence[str]) -> None:
    """UsageError unless the descriptor is a connected TCP socket that runs one of the names."""
    with _tcp_socket(fd) as found:
        try:
            found.getpeername()
        except OSError as error:
            raise UsageError(f"Descriptor {fd} is a TCP socket without a connection.") from error
        used = found.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
        name = used.partition(b"\0")[0].decode(errors="replace")
        if name not in names:
            raise UsageError(
                f"The socket of descriptor {fd} runs {name}; switch it to {' or '.join(names)} "
                "before tagging it."
            )
        # Makes the kernel give the socket its cookie, by which events name it.
        cookie_of(found)


def other_build(backend: Backend, status: Status) -> str:
    """A sentence where what is loaded isn't what this tool would load; empty where it is."""
    here = backend.build_here()
    if not status.build or not here or status.build == here:
        return ""
    return (
        f"{status.backend}: loaded is build {status.build}, and this tool's is {here}: `mltcp load"
        f" --replace --backend {status.backend}` puts that in its place."
    )
