# SPDX-License-Identifier: BSD-2-Clause
"""Sockets seen, switched and tagged by BPF programs (bpf/attach.bpf.c), no process being touched.

An iterator walks over a network namespace's TCP sockets and fulfils a wish for each that has one.
Some kernels (bpf/README.md has their list) miscount the users of a connection that arrives just
where that walk is (CVE-2026-74714), so it is made where something is to change, once for all
sockets that are to; what is attached already is listed from socket storage, without it.
What a socket ran before its first wish stays in socket storage, in a map of its own that outlives
the congestion controls' maps, so that it can be put back after they are gone.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

from mltcp_tools.base.errors import HostError, UnknownError
from mltcp_tools.kernel.backends.pins import PIN_ROOT, Home, OtherVersionError, explain, id_of_tags
from mltcp_tools.kernel.congestion_controls import NAMES
from mltcp_tools.kernel.host.closing import Closing
from mltcp_tools.kernel.host.namespaces import inside
from mltcp_tools.kernel.host.tcpstates import tcp_state
from mltcp_tools.kernel.native import objects, requirements
from mltcp_tools.kernel.native.bpf_maps import BpfMap
from mltcp_tools.kernel.native.bpf_object import BpfObject
from mltcp_tools.kernel.native.libbpf import BpfError
from mltcp_tools.kernel.native.uapi import address_text

FIRST_PIN = PIN_ROOT.with_name("mltcp_first")
"""The map of what attached sockets ran before. A user who may not look there is told that there is
none, as os.path.exists does."""

WISH = struct.Struct("=I4x16s16sIIQ")  # struct mltcp_wish
FOUND = struct.Struct("=QI4x16s16s")  # struct mltcp_found
ATTACHED = struct.Struct("=QII16s16sHHIIIQ16s16s")  # struct mltcp_attached
HELD = struct.Struct("=QQIII4x")  # struct mltcp_held
_COOKIE = struct.Struct("=Q")

_FIRST_PIDS = 0xEFFFFFFC
"""Inode of the first pid namespace (PROC_PID_INIT_INO), whose pids the programs see."""


class Action(IntEnum):
    """enum mltcp_action."""

    GIVE = 0
    TAKE = 1


@dataclass(frozen=True)
class Wish:
    """An order for a socket. expected: GIVE leaves a socket alone that runs another one.
    job: id of the one to tag it with, 0 for none."""

    action: Action
    name: str = ""
    expected: str = ""
    job: int = 0


@dataclass(frozen=True)
class SocketAnswer:
    """The answer of a socket. error: an errno, 0 where the wish is fulfilled; ENOTCONN where it
    can't send any more, EBUSY where it ran another one than expected. was, now: what it ran before
    and after the wish."""

    error: int
    was: str
    now: str


@dataclass(frozen=True)
class Attached:
    """An attached socket of any namespace. job: id of the one that it was attached to last.

    state: of TCP. tag: the job that the congestion control sees, and the namespace that it belongs
    to; None where that was lost, as by an unload.
    """

    cookie: int
    netns: int
    job: int
    local: tuple[str, int]
    remote: tuple[str, int]
    state: str
    tag: tuple[int, Home] | None
    first: str
    now: str


class Held(NamedTuple):
    """A descriptor of a TCP socket. netns: inode of the socket's namespace."""

    cookie: int
    inode: int
    pid: int
    fd: int
    netns: int


class KernelSockets(Closing):
    """The programs, in the kernel until this is closed. HostError where it doesn't take them.

    tags: the id of the map of tags that they write; 0 where nothing is loaded. pinned: whether what
    sockets ran before outlives this process; there is no need where nothing is loaded nor left.
    """

    def __init__(self) -> None:
        requirements.require_bpf(PIN_ROOT.parent)
        with ExitStack() as stack:
            shared = {}
            tags = BpfMap.find(PIN_ROOT / "mltcp_tags")
            if tags is not None:
                shared["mltcp_tags"] = stack.enter_context(tags).fd
            self.pinned = bool(shared) or os.path.exists(FIRST_PIN)
            try:
                self.object = BpfObject(
                    objects.build_object("attach"),
                    None,
                    shared=shared,
                    pins={"mltcp_first": FIRST_PIN} if self.pinned else None,
                )
            except BpfError as error:
                raise explain(error, "Loading the programs that attach") from error
            self.tags = tags.id if tags is not None else 0
        self._readers: dict[str, Callable[[], list[bytes]]] = {}

    def fulfil(
        self, wishes: Mapping[int, Wish], home: Home, netns: int, by: Iterable[int] = ()
    ) -> dict[int, SocketAnswer]:
        """Fulfil the wishes for sockets of one network namespace, by cookie; say what came of it.

        Sockets that aren't there (any more) are left out. home: the namespace that the jobs belong
        to. netns: inode of the sockets' namespace; by: pids of processes that may be in it. Raises
        Unreachable.
        """
        with self.object.map("mltcp_wishes") as wanted, inside(netns, by):
            for cookie, wish in wishes.items():
                tag = (wish.job, home.netns, home.cookie)
                names = wish.expected.encode(), wish.name.encode()
                wanted.set(_COOKIE.pack(cookie), WISH.pack(wish.action, *names, *tag))
            try:
                found = {
                    cookie: SocketAnswer(error, _text(was), _text(now))
                    for cookie, error, was, now in self._read("fulfil", FOUND)
                }
            finally:
                for cookie in wishes:
                    wanted.delete(_COOKIE.pack(cookie))
        return found

    def attached(self) -> list[Attached]:
        """All attached sockets, of every network namespace."""
        with self.object.map("mltcp_first") as first:
            read = self._read("list_attached", ATTACHED, first.fd)
        found = []
        for cookie, netns, job, local, remote, local_port, remote_port, *more in read:
            state, tagged, its_netns, home, before, now = more
            ends = (address_text(local), local_port), (address_text(remote), remote_port)
            tag = (tagged, Home(home, its_netns)) if tagged else None
            names = _text(before), _text(now)
            found.append(Attached(cookie, netns, job, *ends, tcp_state(state), tag, *names))
        return found

    def held(self) -> list[Held]:
        """The TCP sockets that processes hold, by descriptor.

        HostError in a pid namespace of this process's own.
        """
        if os.stat("/proc/self/ns/pid").st_ino != _FIRST_PIDS:
            raise HostError(
                "This process is in a PID namespace of its own, whose pids the kernel's programs"
                " don't know; run it on the host."
            )
        return [Held(*each) for each in self._read("list_held", HELD)]

    def _read(
        self, program: str, record: struct.Struct, map_fd: int | None = None
    ) -> Iterator[tuple[Any, ...]]:
        try:
            if program not in self._readers:
                self._readers[program] = self.object.attach_iterator(program, record.size, map_fd)
            return map(record.unpack, self._readers[program]())
        except BpfError as error:
            raise explain(error, "Walking over the sockets") from error

    def close(self) -> None:
        self.object.close()


def _text(name: bytes) -> str:
    return name.partition(b"\0")[0].decode(errors="replace")


_kept: list[KernelSockets] = []


def kernel_sockets() -> KernelSockets:
    """The programs of this process, loaded when first asked for, and anew after another load."""
    tags = id_of_tags()
    if _kept and (_kept[0].tags != tags or _kept[0].pinned != os.path.exists(FIRST_PIN)):
        _kept.pop().close()
    if not _kept:
        _kept.append(KernelSockets())
    return _kept[0]


def forget_first() -> bool:
    """Remove the map of what attached sockets ran before, unless one of them may still run ours,
    or a read-only file system keeps it. Returns whether it is gone."""
    if not os.path.exists(FIRST_PIN):
        return True
    try:
        if any(each.now in NAMES for each in kernel_sockets().attached()):
            return False
    except OtherVersionError:  # which nothing can read any more
        pass
    except (HostError, UnknownError):
        return False
    try:
        FIRST_PIN.unlink(missing_ok=True)
    except OSError:
        return False
    while _kept:
        _kept.pop().close()
    return True
