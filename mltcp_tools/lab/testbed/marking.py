# SPDX-License-Identifier: BSD-2-Clause
"""A queue that marks from a threshold on, by a BPF program in front of the bottleneck's qdisc.

It takes no more of the kernel than BPF: RED, which a link with `aqm: red` has, is often missing.
"""

from __future__ import annotations

import struct
from pathlib import Path

from mltcp_tools.kernel.host.clsact import add_egress, egress_programs, remove_egress
from mltcp_tools.kernel.native.bpf_maps import maps_of_program
from mltcp_tools.kernel.native.bpf_object import BpfObject
from mltcp_tools.kernel.native.objects import build_object
from mltcp_tools.lab.experiments.links import Link

THRESHOLD = 4
"""It is so long as this part of the queue."""

_SETTINGS = struct.Struct("=QQQQ")  # struct settings of bpf/mark.bpf.c
_MARKED = struct.Struct("=16xQ")  # struct queue there
_MAP = "mltcp_marking"
_PRIORITY = 5
_FIRST = struct.pack("=I", 0)


def add_marking(interface: str, link: Link, burst: int) -> None:
    """Have what leaves `interface` marked where the queue of `link` is longer than its threshold.

    burst: bytes of the token bucket that makes the link, which never wait for its rate.
    It goes with the interface, or by `remove_marking`.
    """
    ns_per_byte = 8e9 / link.rate
    settings = _SETTINGS.pack(
        round(1024 * ns_per_byte),
        round(link.queue // THRESHOLD * ns_per_byte),
        round(link.queue * ns_per_byte),
        round(burst * ns_per_byte),
    )
    with BpfObject(build_object("mark"), Path("/sys/fs/bpf"), {".rodata.link": settings}) as loaded:
        add_egress(interface, loaded.program_fd("mark"), _MAP, _PRIORITY)


def remove_marking(interface: str) -> None:
    """Take that away again; no error where there is none."""
    remove_egress(interface, _PRIORITY)


def marked(interface: str) -> int:
    """Packets that `interface` has marked since that was added."""
    found = 0
    for program in egress_programs(interface):
        for each in maps_of_program(program):
            if each.name == _MAP and (value := each.get(_FIRST)):
                found += _MARKED.unpack_from(value)[0]
    return found
