# SPDX-License-Identifier: BSD-2-Clause
"""The maps that the programs share, pinned in bpffs, and what belongs to a network namespace there.

Each process opens them anew where it needs them: another may have replaced them meanwhile.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mltcp_tools.base.errors import BusyError, HostError, MltcpError, UnknownError, UsageError
from mltcp_tools.kernel.backends import checks, struct_ops
from mltcp_tools.kernel.native import requirements
from mltcp_tools.kernel.native.bpf_maps import BpfMap
from mltcp_tools.kernel.native.libbpf import BpfError
from mltcp_tools.kernel.native.uapi import ffi, pack

PIN_ROOT = Path("/sys/fs/bpf/mltcp")
NEW_ROOT = PIN_ROOT.with_name("mltcp_new")
OLD_ROOT = PIN_ROOT.with_name("mltcp_old")
"""The folder of maps while others take their place; bpffs has no names with dots."""

_STRUCTS = {
    "mltcp_tags": "mltcp_tag",
    "mltcp_flows": "mltcp_flow",
    "mltcp_jobs": "mltcp_job",
}
"""Maps whose values are structs of the uapi header, and which struct."""

_COUNTERS = ("mltcp_dropped", "mltcp_skipped")

MAPS = (*_STRUCTS, "mltcp_paths", "mltcp_hosts", "mltcp_events", *_COUNTERS, "mltcp_off")
"""Maps that the objects share, pinned by these names (bpf/mltcp_maps.bpf.h)."""


class OtherVersionError(HostError):
    """The pinned maps are those of another version of this tool."""

    def __init__(self) -> None:
        super().__init__(
            f"The maps in {PIN_ROOT} are another version's; run `mltcp unload --force`, then load"
            " again."
        )


_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""A lack for the moment, which says nothing of what the kernel can do or has."""

_SO_NETNS_COOKIE = 71
"""asm-generic/socket.h; since kernel 5.14."""


def map_key(number: int) -> bytes:
    """A key of 32 bits, as the maps have them: a job's id, a descriptor or an index."""
    if not 0 <= number < 2**32:
        raise UsageError(f"{number} is neither a job's id nor a descriptor.")
    return struct.pack("=I", number)


def explain(error: BpfError, doing: str) -> MltcpError:
    """One sentence for a libbpf failure."""
    detail = " ".join(error.log.strip().splitlines()[-3:])
    if "parameter mismatch" in error.log:  # libbpf's words for pinned maps of other sizes
        return OtherVersionError()
    if error.errno == errno.EEXIST:
        return BusyError(f"{doing} failed: another congestion control has that name already.")
    if error.errno in _EXHAUSTED:
        return UnknownError(
            f"{doing} failed: {os.strerror(error.errno)}; free some of it and retry."
        )
    if error.errno == errno.EPERM:
        return HostError(
            f"{doing} failed: not permitted; run as root in the initial namespaces, and see "
            "`mltcp doctor` for lockdown and capabilities."
        )
    return HostError(f"{doing} failed: {error} {detail}".rstrip())


@dataclass(frozen=True)
class Home:
    """A network namespace: its cookie, which no other ever has, and its inode."""

    cookie: int
    netns: int

    @classmethod
    def here(cls) -> Home:
        """The namespace of the calling thread."""
        with socket.socket() as probe:
            data = probe.getsockopt(socket.SOL_SOCKET, _SO_NETNS_COOKIE, 8)
        return cls(struct.unpack("=Q", data)[0], os.stat("/proc/thread-self/ns/net").st_ino)

    def key(self, job_id: int) -> bytes:
        """Of a job in mltcp_jobs."""
        return pack("mltcp_job_key", {"home": self.cookie, "id": job_id})


@contextmanager
def pinned(name: str) -> Iterator[BpfMap]:
    """The pinned map, open; MltcpError when nothing is loaded."""
    requirements.require_bpf_capabilities()
    found = BpfMap.find(PIN_ROOT / name)
    if found is None:
        requirements.require_bpf(PIN_ROOT.parent)  # only now, as reading all of that takes a while
        raise checks.not_loaded("bpf")
    with found:
        kind = _STRUCTS.get(name)
        if kind and found.value_size != ffi.sizeof(f"struct {kind}"):
            raise OtherVersionError()
        if name == "mltcp_jobs" and found.key_size != ffi.sizeof("struct mltcp_job_key"):
            raise OtherVersionError()
        yield found


def skipped_results() -> int | None:
    """Return how many results of programs that the kernel skipped were fixed (bpf/README.md).

    Counted since the programs were loaded; None where they aren't.
    """
    skipped = BpfMap.find(PIN_ROOT / "mltcp_skipped")
    if skipped is None:
        return None
    with skipped:
        return read_counter(skipped)


def read_counter(counter: BpfMap) -> int:
    """Return the count of one of the programs' counters."""
    return int(struct.unpack("=Q", counter.get(map_key(0)) or bytes(8))[0])


def elsewhere() -> list[str]:
    """Names that the kernel has registered with other maps than those pinned here."""
    return struct_ops.elsewhere(id_of_tags())


def id_of_tags() -> int:
    """The id of the pinned map of tags; 0 where nothing is loaded."""
    tags = BpfMap.find(PIN_ROOT / "mltcp_tags")
    if tags is None:
        return 0
    with tags:
        return tags.id


def loaded_elsewhere(names: list[str]) -> str:
    """A sentence on what somebody loaded who doesn't share our pins."""
    return (
        f"The kernel has {', '.join(names)} (build {struct_ops.in_force()[0]}) loaded by somebody"
        f" who sees another file system at {PIN_ROOT.parent}, as in a container, `ip netns exec`"
        " or `unshare --mount`; run the command there, or take it over here with `mltcp load"
        " --replace`."
    )


def is_pinned(name: str) -> bool:
    """Return whether the map is pinned; HostError where this process may not look."""
    requirements.require_bpf(PIN_ROOT.parent)
    return (PIN_ROOT / name).exists()
