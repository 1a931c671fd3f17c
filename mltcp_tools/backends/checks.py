"""What every backend refuses, in the same words."""

from __future__ import annotations

import os
import socket
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from mltcp_tools.backends.base import ALL_NAMES, Flow
from mltcp_tools.errors import BusyError, MltcpError, UsageError
from mltcp_tools.host import facts
from mltcp_tools.host.descriptors import cookie_of


def check_offered(backend: str, names: Sequence[str], offered: Sequence[str]) -> None:
    """UsageError for a name that the backend doesn't offer."""
    for name in names:
        if name not in offered:
            elsewhere = " (another backend has it)" if name in ALL_NAMES else ""
            raise UsageError(
                f"The {backend} backend has no {name}{elsewhere}; it has {', '.join(offered)}."
            )


def not_loaded(backend: str) -> MltcpError:
    """What to raise when something is asked of a backend that isn't there."""
    return MltcpError(f"The {backend} backend isn't loaded; run `mltcp load`.")


def loaded_already(names: Sequence[str]) -> BusyError:
    """What to raise when defaults are given for what is loaded."""
    return BusyError(
        f"{', '.join(names)} are loaded with their own defaults; run `mltcp unload` first."
    )


def no_job(job_id: int) -> UsageError:
    """What to raise when sockets are to be tagged with a job that isn't set."""
    return UsageError(f"There is no job {job_id}; set it before tagging sockets.")


def no_such_job(job_id: int) -> UsageError:
    """What to raise when a job that isn't set is to be deleted."""
    return UsageError(f"There is no job {job_id}.")


def check_unused(flows: Collection[Flow], names: Collection[str]) -> None:
    """BusyError while sockets use the names, or one is this network namespace's default."""
    default = facts.default_congestion_control()
    if default in names:
        raise BusyError(
            f"{default} is the default of this network namespace; set another one "
            "first: sysctl net.ipv4.tcp_congestion_control=cubic"
        )
    if flows:
        raise BusyError(
            f"{len(flows)} sockets are still driven ({usage(flows)}); close or switch them"
            " (`mltcp detach`), or use --force: they then run on as their base algorithm until"
            " they close."
        )


def usage(flows: Collection[Flow]) -> str:
    """How many sockets each congestion control drives, for people."""
    used = Counter(flow.congestion_control for flow in flows)
    return ", ".join(f"{count} by {name}" for name, count in used.items())


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
