# SPDX-License-Identifier: BSD-2-Clause
"""New connections of a cgroup's processes are made flows of a job before their first data.

Today a `sockops` program on the cgroup does it. Kernels to come let a struct_ops of the type
`bpf_tcp_ops` be attached to cgroups, with the same moments of a connection: this module alone
changes for them.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

from mltcp_tools.kernel.backends.bpf_sockets import KernelSockets
from mltcp_tools.kernel.backends.catch import CHOICES, Catch, Catcher
from mltcp_tools.kernel.backends.pins import Home, explain
from mltcp_tools.kernel.native.bpf_maps import CGROUP_SOCK_OPS
from mltcp_tools.kernel.native.libbpf import BpfError
from mltcp_tools.kernel.native.uapi import RULE_PORTS

RULE = struct.Struct(f"=IIQ16s{32 * CHOICES}sI{RULE_PORTS}II")  # struct mltcp_rule
CATCHING = "catch_new"
"""The name of the program on each cgroup."""

_CHOICE = struct.Struct("=16s16s")  # struct mltcp_choice
_KEY = struct.Struct("=QI4x")  # struct bpf_cgroup_storage_key


def packed(rule: Catch, home: Home) -> bytes:
    """As struct mltcp_rule; home: the namespace that the job belongs to."""
    pairs = [_CHOICE.pack(*(each.encode() for each in pair)) for pair in rule.choices.items()]
    return RULE.pack(
        rule.job,
        home.netns,
        home.cookie,
        rule.name.encode(),
        b"".join(pairs),
        rule.lowest_port,
        *rule.padded_ports,
        rule.stays_here,
    )


class BpfCatcher(Catcher):
    """By a program on each cgroup, which leaves with this process."""

    switches = True

    def __init__(self, kernel: KernelSockets, home: Home) -> None:
        super().__init__()
        self._kernel = kernel
        self._home = home
        self._links: dict[Path, Callable[[], None]] = {}

    def _begin(self, path: Path, folder: int, rule: Catch) -> bool:
        linked = path in self._links
        try:
            if not linked:
                self._links[path] = self._kernel.object.link_to_cgroup(CATCHING, folder)
            key = _KEY.pack(os.fstat(folder).st_ino, CGROUP_SOCK_OPS)
            with self._kernel.object.map("mltcp_rules") as rules:
                rules.set(key, packed(rule, self._home))
        except BpfError as error:
            if not linked and path in self._links:
                self._links.pop(path)()
            raise explain(error, f"Catching new connections of {path}") from error
        return True

    def _end(self, path: Path, cgroup: int) -> None:
        self._links.pop(path)()

    def close(self) -> None:
        for end in self._links.values():
            end()
        self._links.clear()
        self._rules.clear()
