"""New connections of a cgroup's processes are made flows of a job before their first data.

Today a `sockops` program on the cgroup does it. Kernels to come let a struct_ops of the type
`bpf_tcp_ops` be attached to cgroups, with the same moments of a connection: this module alone
changes for them.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Mapping
from pathlib import Path

from mltcp_tools.kernel.backends.bpf_sockets import KernelSockets
from mltcp_tools.kernel.backends.catch import PORTS, Catch, Catcher
from mltcp_tools.kernel.backends.pins import Home, explain
from mltcp_tools.kernel.native.bpf_object import CGROUP_SOCK_OPS
from mltcp_tools.kernel.native.libbpf import BpfError

CHOICES = 16
"""MLTCP_CHOICES of bpf/attach.bpf.h."""

RULE = struct.Struct(f"=IIQ16s{32 * CHOICES}sI4x{PORTS}I")  # struct mltcp_rule
_CHOICE = struct.Struct("=16s16s")  # struct mltcp_choice
_KEY = struct.Struct("=QI4x")  # struct bpf_cgroup_storage_key


def packed(rule: Catch, home: Home) -> bytes:
    """As struct mltcp_rule; home: the namespace that the job belongs to."""
    pairs = [_CHOICE.pack(*(each.encode() for each in pair)) for pair in rule.choices.items()]
    if len(pairs) > CHOICES:
        raise ValueError(f"at most {CHOICES} choices")
    return RULE.pack(
        rule.job,
        home.netns,
        home.cookie,
        rule.name.encode(),
        b"".join(pairs),
        rule.lowest_port,
        *rule.padded_ports,
    )


class BpfCatcher(Catcher):
    """By a program on each cgroup, which leaves with this process."""

    switches = True

    def __init__(self, kernel: KernelSockets, home: Home) -> None:
        self._kernel = kernel
        self._home = home
        self._links: dict[Path, Callable[[], None]] = {}
        self._rules: dict[Path, Catch] = {}

    def set(self, wanted: Mapping[Path, Catch]) -> None:
        for path in [*self._links]:
            if path not in wanted or not path.is_dir():
                self._links.pop(path)()
                del self._rules[path]
        for path, rule in wanted.items():
            if self._rules.get(path) != rule:
                self._catch(path, rule)

    def _catch(self, path: Path, rule: Catch) -> None:
        try:
            folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            if path not in self._links:
                self._links[path] = self._kernel.object.link_to_cgroup("catch_new", folder)
            key = _KEY.pack(os.fstat(folder).st_ino, CGROUP_SOCK_OPS)
            with self._kernel.object.map("mltcp_rules") as rules:
                rules.set(key, packed(rule, self._home))
            self._rules[path] = rule
        except BpfError as error:
            raise explain(error, f"Catching new connections of {path}") from error
        finally:
            os.close(folder)

    @property
    def cgroups(self) -> list[Path]:
        return [*self._rules]

    def close(self) -> None:
        for end in self._links.values():
            end()
        self._links.clear()
        self._rules.clear()
