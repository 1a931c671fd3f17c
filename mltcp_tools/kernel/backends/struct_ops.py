# SPDX-License-Identifier: BSD-2-Clause
"""MLTCP in the kernel as eBPF struct_ops: registrations, and what is in force in them."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from mltcp_tools import __version__
from mltcp_tools.base.errors import HostError
from mltcp_tools.kernel.backends.base import JobParams
from mltcp_tools.kernel.backends.params import params_from_struct
from mltcp_tools.kernel.congestion_controls import offered_by
from mltcp_tools.kernel.native.bpf_maps import (
    STRUCT_OPS_INUSE,
    BpfMap,
    maps_of_programs,
    struct_ops_maps,
)
from mltcp_tools.kernel.native.csources import digest, program_sources
from mltcp_tools.kernel.native.uapi import ffi, unpack

ZERO = struct.pack("=I", 0)
BUILD_BYTES = 32
"""MLTCP_BUILD_BYTES of bpf/mltcp_maps.bpf.h."""

_BUILD = ".rodata.build"
_DEFAULTS = ".rodata.default"  # the kernel keeps 15 characters of a map's name


def build_here() -> str:
    """The build that this tool loads: its version, and a digest of the programs' sources."""
    return f"{__version__}+{digest(program_sources())[:8]}"


def our_maps() -> Iterator[tuple[BpfMap, bool]]:
    """The struct_ops map of each of our congestion controls, and whether it is registered.

    A socket or a default holds those that are not registered any more.
    """
    for found in struct_ops_maps():
        value = found.get(ZERO) if found.name in offered_by("bpf") else None
        # struct bpf_struct_ops_common_value: reference count, then state; since kernel 5.6
        if value:
            state = struct.unpack_from("=I", value, 4)[0]
            yield found, state == STRUCT_OPS_INUSE


def registered() -> list[str]:
    """Names of our congestion controls that BPF has registered."""
    return [found.name for found, is_registered in our_maps() if is_registered]


def unregistered() -> list[str]:
    """Names whose programs the kernel still has without a registration."""
    return [found.name for found, is_registered in our_maps() if not is_registered]


def any_left() -> list[str]:
    """Names whose programs the kernel has, registered or not; none where it can't have any."""
    try:
        return [found.name for found, _ in our_maps()]
    except HostError:  # no libbpf, or no BPF
        return []


def elsewhere(tags: int) -> list[str]:
    """Names that are registered whose programs use another map of tags than the one with this id.

    These were loaded by somebody who sees another file system of pins than this process.
    """
    found = []
    for each, is_registered in our_maps():
        if is_registered:
            used = [known.id for known in maps_of_programs(each) if known.name == "mltcp_tags"]
            if used and tags not in used:
                found.append(each.name)
    return found


def unregister(names: Sequence[str]) -> None:
    """Unregister those of the names that are registered; sockets keep the code they have."""
    for found, is_registered in our_maps():
        if is_registered and found.name in names:
            found.delete(ZERO)


def in_force() -> tuple[str, JobParams | None]:
    """The build of the registered programs, and the parameters of their flows without a job.

    As the programs' own read-only maps have them. Builds that differ from name to name are listed;
    `unknown` is one that doesn't say. Parameters of another layout are None.
    """
    builds, defaults = set(), None
    for found, is_registered in our_maps():
        if not is_registered:
            continue
        build = "unknown"
        for data in maps_of_programs(found):
            if data.name not in (_BUILD, _DEFAULTS):  # the key of socket storage is a descriptor
                continue
            value = data.get(ZERO) or b""
            if data.name == _BUILD:
                build = value.partition(b"\0")[0].decode(errors="replace") or build
            elif data.name == _DEFAULTS and len(value) == ffi.sizeof("struct mltcp_params"):
                defaults = params_from_struct(unpack("mltcp_params", value))
        builds.add(build)
    return ", ".join(sorted(builds)), defaults
