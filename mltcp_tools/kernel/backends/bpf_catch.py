"""New connections of a cgroup's processes are made flows of a job before their first data.

Today a `sockops` program on the cgroup does it. Kernels to come let a struct_ops of the type
`bpf_tcp_ops` be attached to cgroups, with the same moments of a connection: this module alone
changes for them.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mltcp_tools.errors import HostError
from mltcp_tools.kernel.backends.bpf_sockets import KernelSockets
from mltcp_tools.kernel.backends.pins import Home, explain
from mltcp_tools.kernel.host import cgroups
from mltcp_tools.kernel.host.closing import Closing
from mltcp_tools.kernel.native.bpf_object import CGROUP_SOCK_OPS
from mltcp_tools.kernel.native.libbpf import BpfError

CHOICES = 16
PORTS = 4
"""MLTCP_CHOICES and MLTCP_PORTS of bpf/attach.bpf.h."""

RULE = struct.Struct(f"=IIQ16s{32 * CHOICES}sI4x{PORTS}I")  # struct mltcp_rule
_CHOICE = struct.Struct("=16s16s")  # struct mltcp_choice
_KEY = struct.Struct("=QI4x")  # struct bpf_cgroup_storage_key


@dataclass(frozen=True)
class Catch:
    """A rule for new connections. job: id of the one that they get.

    name: the congestion control that they get; empty: the one that `choices` has for what they run,
    and none where it has none. lowest_port, ports: connections with a port below, or with one of
    these, are left alone; at most PORTS of them.
    """

    job: int
    name: str = ""
    choices: Mapping[str, str] = field(default_factory=dict)
    lowest_port: int = 0
    ports: tuple[int, ...] = ()

    def packed(self, home: Home) -> bytes:
        """As struct mltcp_rule; home: the namespace that the job belongs to."""
        pairs = [_CHOICE.pack(*(each.encode() for each in pair)) for pair in self.choices.items()]
        if len(pairs) > CHOICES or len(self.ports) > PORTS:
            raise ValueError(f"at most {CHOICES} choices and {PORTS} ports")
        ports = (*self.ports, *[0] * (PORTS - len(self.ports)))
        return RULE.pack(
            self.job,
            home.netns,
            home.cookie,
            self.name.encode(),
            b"".join(pairs),
            self.lowest_port,
            *ports,
        )


class Catcher(Closing):
    """Catches new connections of cgroups for as long as this process lives, and no longer."""

    def __init__(self, kernel: KernelSockets, home: Home) -> None:
        self._kernel = kernel
        self._home = home
        self._links: dict[Path, Callable[[], None]] = {}
        self._rules: dict[Path, Catch] = {}

    def set(self, wanted: Mapping[Path, Catch]) -> None:
        """Catch for these cgroups, by their folders, and for no others. HostError names the first
        one for which the kernel refuses it; one that is gone meanwhile is passed over."""
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
                rules.set(key, rule.packed(self._home))
            self._rules[path] = rule
        except BpfError as error:
            raise explain(error, f"Catching new connections of {path}") from error
        finally:
            os.close(folder)

    @property
    def cgroups(self) -> list[Path]:
        """For which new connections are caught."""
        return [*self._rules]

    def close(self) -> None:
        for end in self._links.values():
            end()
        self._links.clear()
        self._rules.clear()


def folder_of(path: str) -> Path | None:
    """The folder of a cgroup by its path below the mount; None where it isn't one of version 2, or
    is the root, which is nobody's job."""
    if path.strip("/") == "":
        return None
    try:
        folder = cgroups.root() / path.strip("/")
    except HostError:
        return None
    return folder if (folder / "cgroup.procs").exists() else None
