# SPDX-License-Identifier: BSD-2-Clause
"""The network namespaces of this host, and being inside one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pyroute2 import netns

from mltcp_tools.base.errors import HostError
from mltcp_tools.kernel.host.facts import read_sysctl, sysctl_path

PROC = Path("/proc")
_HOME = "/proc/thread-self/ns/net"
DEFAULT = "net.ipv4.tcp_congestion_control"
_ALLOWED = "net.ipv4.tcp_allowed_congestion_control"
MOUNTED = "network namespace "
"""The name of a mounted one begins with this."""

_T = TypeVar("_T")


@dataclass(frozen=True)
class NetNamespace:
    """A network namespace. path: a file by which it can be entered, for as long as that is there.

    name: what people find it by: the file it is mounted at, or a process in it.
    """

    inode: int
    path: str
    name: str

    @property
    def is_here(self) -> bool:
        """Return whether it was the calling thread's own."""
        return self.path == _HOME


@contextlib.contextmanager
def entered(path: str | Path) -> Iterator[None]:
    """Run the calling thread's next system calls in the namespace of that file."""
    with open(_HOME) as home, open(path) as target:
        netns.setns(target.fileno())
        try:
            yield
        finally:
            netns.setns(home.fileno())


class Unreachable(HostError):
    """Nothing leads to a network namespace any more, or this process may not enter it."""


@contextlib.contextmanager
def inside(inode: int, by: Iterable[int] = ()) -> Iterator[None]:
    """As `entered`, in the network namespace with this inode, which may be the present one.

    by: pids of processes that may be in it. Raises Unreachable.
    """
    if os.stat(_HOME).st_ino == inode:
        yield
        return
    with open(_HOME) as home:
        _enter(inode, by)
        try:
            yield
        finally:
            netns.setns(home.fileno())


def _enter(inode: int, by: Iterable[int]) -> None:
    """Let the calling thread into the namespace by the first file that leads there."""
    for path in _paths(inode, by):
        try:
            with open(path) as target:
                if os.fstat(target.fileno()).st_ino == inode:
                    netns.setns(target.fileno())
                    return
        except PermissionError as error:
            if error.filename is None:  # entering, not opening
                raise Unreachable(
                    f"The network namespace {inode} can't be entered: this needs CAP_SYS_ADMIN in"
                    " both user namespaces; run it as root (sudo)."
                ) from error
        except (FileNotFoundError, ProcessLookupError):
            continue
    raise Unreachable(f"No process or mount leads to the network namespace {inode}.")


def _paths(inode: int, by: Iterable[int]) -> Iterator[str]:
    yield from (f"/proc/{pid}/ns/net" for pid in by)
    yield from (each.path for each in net_namespaces() if each.inode == inode)


def net_namespaces() -> list[NetNamespace]:
    """Every network namespace that a process, a thread, a mount or an open descriptor keeps.

    This process's own is the first. As far as this user may see: root sees all. A namespace that
    nothing but a mount in another mount namespace keeps isn't found.
    """
    found: dict[int, NetNamespace] = {}
    for path, name in _candidates():
        inode = _inode(path)
        if inode and inode not in found:
            found[inode] = NetNamespace(inode, path, name)
    return list(found.values())


def _candidates() -> Iterator[tuple[str, str]]:
    """Files of network namespaces, with names; those that are easiest to find again come first."""
    yield _HOME, "this network namespace"
    for line in (PROC / "self/mountinfo").read_text().splitlines():
        head, _, tail = line.partition(" - ")
        if tail.startswith("nsfs ") and head.split(" ")[3].startswith("net:["):
            path = head.split(" ")[4]
            yield path, f"{MOUNTED}{path.removeprefix('/run/netns/')}"
    pids = sorted(int(each) for each in os.listdir(PROC) if each.isdecimal())
    for pid in pids:
        yield f"/proc/{pid}/ns/net", f"the network namespace of process {process_name(pid)}"
    for pid in pids:
        where = f"a network namespace of process {process_name(pid)}"
        for folder, name in (("task", "ns/net"), ("fd", "")):
            with contextlib.suppress(OSError):  # it has ended, or is somebody else's
                for each in os.listdir(PROC / str(pid) / folder):
                    yield f"/proc/{pid}/{folder}/{each}/{name}".rstrip("/"), where


def hidden_processes() -> int:
    """Return the number of processes whose network namespace this process may not read.

    What only these have is missing in the list of namespaces, so it isn't known to be absent.
    """
    count = 0
    for pid in (each for each in os.listdir(PROC) if each.isdecimal()):
        try:
            os.readlink(PROC / pid / "ns/net")
        except PermissionError:
            count += 1
        except OSError:
            pass  # it has ended
    return count


def process_name(pid: int) -> str:
    """`1234 (python3)`, the name as far as it prints."""
    try:
        name = (PROC / str(pid) / "comm").read_text(errors="replace").rstrip("\n")
    except OSError:
        return str(pid)
    return f"{pid} ({''.join(char if char.isprintable() else '?' for char in name)})"


def _inode(path: str) -> int:
    """The number of the namespace that the file stands for; 0 where it stands for none."""
    try:
        if path.startswith("/proc/"):
            target = os.readlink(path)
            return int(target[5:-1]) if target.startswith("net:[") else 0
        return os.stat(path).st_ino
    except OSError:
        return 0


def in_each(do: Callable[[], _T]) -> list[tuple[NetNamespace, _T]]:
    """Return the result of `do` inside each network namespace; those that are gone meanwhile left
    out.
    """
    found = []
    for each in net_namespaces():
        try:
            # Even entering the present namespace takes a privilege.
            with contextlib.nullcontext() if each.path == _HOME else entered(each.path):
                found.append((each, do()))
        except (FileNotFoundError, ProcessLookupError):
            continue
        except PermissionError as error:
            raise HostError(
                f"{each.name[:1].upper()}{each.name[1:]} can't be entered; run it as root (sudo) of"
                " the host."
            ) from error
    return found


def defaults() -> list[tuple[NetNamespace, str]]:
    """The congestion control that new sockets of each network namespace get."""
    return in_each(lambda: read_sysctl(DEFAULT))


def set_default(namespace: NetNamespace, name: str) -> str:
    """Make it the namespace's default, else cubic, else reno; the default then, as read back.

    Only what the namespace allows is tried: when the kernel (6.1, 6.18) refuses a restricted one,
    it leaks a reference to it. reno is always allowed.
    """
    allowed = read_sysctl(_ALLOWED).split()
    chosen = next((each for each in (name, "cubic") if each in allowed), "reno")
    with entered(namespace.path):
        sysctl_path(DEFAULT).write_text(chosen)
        return read_sysctl(DEFAULT)
